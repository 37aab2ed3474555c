"""Residual networks for small pictures: each block adds its result to its input.

The stem is one 3×3 convolution of stride 1, as published for CIFAR. ResNet-50 and -101 have this
stem too; their published stem shrinks ImageNet's pictures to a quarter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from outpace.tasks.models.layers import conv, conv_norm_relu, he_normal, head


def cifar_resnet(depth: int, classes: int, channels: int) -> nn.Module:
    """Return ResNet-20, -56 or -110: three stages of (depth − 2) / 6 basic blocks.

    He et al. 2016, Deep Residual Learning, section 4.2.
    """
    count = (depth - 2) // 6
    stem = conv_norm_relu(channels, 16)
    stages = _stages(_BasicBlock, 16, [(count, 16), (count, 32), (count, 64)])
    return he_normal(nn.Sequential(stem, *stages, head(64, classes)))


def resnet(blocks: Sequence[int], classes: int, channels: int) -> nn.Module:
    """Return four stages with these numbers of bottleneck blocks (He et al. 2016, table 1)."""
    stem = conv_norm_relu(channels, 64)
    stages = _stages(_Bottleneck, 64, zip(blocks, (256, 512, 1024, 2048), strict=True))
    return he_normal(nn.Sequential(stem, *stages, head(2048, classes)))


def wide_resnet(depth: int, widening: int, classes: int, channels: int) -> nn.Module:
    """Return three stages of (depth − 4) / 6 blocks with 16, 32, 64 channels times `widening`.

    Zagoruyko and Komodakis 2016, table 1. Without dropout.
    """
    count, last = (depth - 4) // 6, 64 * widening
    stem = conv(channels, 16)
    stages = _stages(_WideBlock, 16, [(count, last // 4), (count, last // 2), (count, last)])
    return he_normal(
        nn.Sequential(stem, *stages, nn.BatchNorm2d(last), nn.ReLU(), head(last, classes))
    )


def _stages(
    block: Callable[[int, int, int], nn.Module], inputs: int, stages: Iterable[tuple[int, int]]
) -> list[nn.Module]:
    """Return the blocks of stages (number of blocks, channels).

    Every stage but the first begins with stride 2.
    """
    layers = []
    for stage, (count, outputs) in enumerate(stages):
        for place in range(count):
            layers.append(block(inputs, outputs, 2 if stage > 0 and place == 0 else 1))
            inputs = outputs
    return layers


class _BasicBlock(nn.Module):
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


class _Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside an identity, projected where shapes differ.

    The 3×3 convolution has the stride, not the first convolution as published, so that every pixel
    is used. This is now usual (Goyal et al. 2017, section 5.1).
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        width = outputs // 4
        self.residual = nn.Sequential(
            conv_norm_relu(inputs, width, kernel=1),
            conv_norm_relu(width, width, stride=stride),
            conv(width, outputs, kernel=1),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.residual(x) + self.shortcut(x))


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
        self.projection = None if inputs == outputs else conv(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ready = self.before(x)
        shortcut = x if self.projection is None else self.projection(ready)
        residual: torch.Tensor = self.residual(ready)
        return residual + shortcut
