"""ResNet-20, -56 and -110 for CIFAR: He et al. 2016, Deep Residual Learning, section 4.2."""

from __future__ import annotations

import torch
from torch import nn

from outpace.tasks.models.layers import conv, conv_norm_relu, he_normal, head


def cifar_resnet(depth: int, classes: int, channels: int) -> nn.Module:
    """Return three stages of (depth − 2) / 6 basic blocks with 16, 32 and 64 channels."""
    blocks = (depth - 2) // 6
    layers: list[nn.Module] = [conv_norm_relu(channels, 16)]
    inputs = 16
    for outputs in (16, 32, 64):
        for place in range(blocks):
            stride = 2 if place == 0 and outputs > 16 else 1
            layers.append(_ResidualBlock(inputs, outputs, stride))
            inputs = outputs
    return he_normal(nn.Sequential(*layers, head(64, classes)))


class _ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside an identity without parameters (the paper's option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv_norm_relu(inputs, outputs, stride=stride),
            conv(outputs, outputs),
            nn.BatchNorm2d(outputs),
        )
        self._stride, self._new_channels = stride, outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Every stride-th pixel, with zeros for the new channels.
        every = x[:, :, :: self._stride, :: self._stride]
        shortcut = nn.functional.pad(every, (0, 0, 0, 0, 0, self._new_channels))
        return torch.relu(self.residual(x) + shortcut)
