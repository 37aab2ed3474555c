"""DenseNet-BC: Huang et al. 2017, Densely Connected Convolutional Networks, section 3.

The stem is one 3×3 convolution of stride 1, as published for CIFAR. DenseNet-121 has this stem too;
the published stem shrinks ImageNet's pictures to a quarter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from outpace.tasks.models.layers import conv, he_normal, head


def densenet_121(classes: int, channels: int) -> nn.Module:
    """Return the model with growth rate 32 and blocks of 6, 12, 24 and 16 layers."""
    return _densenet((6, 12, 24, 16), 32, classes, channels)


def densenet_bc(depth: int, growth: int, classes: int, channels: int) -> nn.Module:
    """Return the model for CIFAR: three blocks of (depth − 4) / 6 layers of two convolutions."""
    return _densenet([(depth - 4) // 6] * 3, growth, classes, channels)


def _densenet(blocks: Sequence[int], growth: int, classes: int, channels: int) -> nn.Module:
    features = 2 * growth
    layers: list[nn.Module] = [conv(channels, features)]
    for place, count in enumerate(blocks):
        if place > 0:
            layers.append(_transition(features, features // 2))
            features //= 2
        for _ in range(count):
            layers.append(_Layer(features, growth))
            features += growth
    layers += [nn.BatchNorm2d(features), nn.ReLU(), head(features, classes)]
    return he_normal(nn.Sequential(*layers))


class _Layer(nn.Module):
    """Appends `growth` features to the input, through a bottleneck of four times as many."""

    def __init__(self, features: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(
            nn.BatchNorm2d(features),
            nn.ReLU(),
            conv(features, 4 * growth, kernel=1),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            conv(4 * growth, growth),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.new(x)], dim=1)


def _transition(inputs: int, outputs: int) -> nn.Module:
    """Return layers that halve height and width, and map `inputs` to `outputs` features."""
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), conv(inputs, outputs, kernel=1), nn.AvgPool2d(2)
    )
