"""The digits, and a residual network of the kind of the paper's ResNet that trains in seconds."""

from __future__ import annotations

import torch
from torch import nn

from outpace import Task
from outpace.tasks.data.digits import digits_cnn

_CHANNELS = 16


class Block(nn.Module):
    """Two normalised 3×3 convolutions parallel to an identity (He et al. 2016, figure 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.residual = nn.Sequential(_normalised(_CHANNELS), nn.ReLU(), _normalised(_CHANNELS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.residual(x))


def task() -> Task:
    """Return a convolution, two residual blocks of 16 channels and a linear layer on the digits.

    It has 9,690 parameters. Buffers of the batch normalisation are averaged by the strategies.
    """
    digits = digits_cnn()
    model = nn.Sequential(
        _normalised(1),
        nn.ReLU(),
        Block(),
        Block(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(_CHANNELS, 10),
    )
    return Task(model, digits.loss, digits.train, digits.test)


def _normalised(channels: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, _CHANNELS, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(_CHANNELS))
