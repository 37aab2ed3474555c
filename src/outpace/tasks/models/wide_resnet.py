"""Wide residual networks: Zagoruyko and Komodakis 2016, table 1. Without dropout."""

from __future__ import annotations

import torch
from torch import nn

from outpace.tasks.models.layers import conv, he_normal, head


def wide_resnet(depth: int, widening: int, classes: int, channels: int) -> nn.Module:
    """Return three stages of (depth − 4) / 6 blocks with 16, 32, 64 channels times `widening`."""
    blocks = (depth - 4) // 6
    layers: list[nn.Module] = [conv(channels, 16)]
    inputs = 16
    for stage in range(3):
        outputs = 16 * 2**stage * widening
        for place in range(blocks):
            stride = 2 if place == 0 and stage > 0 else 1
            layers.append(_WideBlock(inputs, outputs, stride))
            inputs = outputs
    return he_normal(
        nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(), head(inputs, classes))
    )


class _WideBlock(nn.Module):
    """Normalise, rectify and convolve, twice; the sum is not rectified."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.residual = nn.Sequential(
            conv(inputs, outputs, stride=stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            conv(outputs, outputs),
        )
        self.projection = (
            None if stride == 1 and inputs == outputs else conv(inputs, outputs, 1, stride)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ready = self.before(x)
        shortcut = x if self.projection is None else self.projection(ready)
        residual: torch.Tensor = self.residual(ready)
        return residual + shortcut
