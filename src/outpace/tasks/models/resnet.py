"""ResNet-50 and -101 (He et al. 2016, table 1), with a stem for small pictures.

The stem is one 3×3 convolution of stride 1 without max-pooling; the published stem shrinks
ImageNet's pictures to a quarter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from outpace.tasks.models.layers import conv, conv_norm_relu, he_normal, head


def resnet(blocks: Sequence[int], classes: int, channels: int) -> nn.Module:
    """Return four stages with these numbers of bottleneck blocks."""
    layers: list[nn.Module] = [conv_norm_relu(channels, 64)]
    inputs = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for place in range(count):
            stride = 2 if place == 0 and stage > 0 else 1
            layers.append(_Bottleneck(inputs, width, stride))
            inputs = 4 * width
    return he_normal(nn.Sequential(*layers, head(inputs, classes)))


class _Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside an identity, projected where shapes differ.

    The 3×3 convolution has the stride, not the first convolution as published, so that every pixel
    is used. This is now usual (Goyal et al. 2017, section 5.1).
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.residual = nn.Sequential(
            conv_norm_relu(inputs, width, kernel=1),
            conv_norm_relu(width, width, stride=stride),
            conv(width, outputs, kernel=1),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.residual(x) + self.shortcut(x))
