"""Keeps pictures as bytes and converts them to floats when they are used, to save memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Pixels(nn.Module):
    """Maps bytes (n, channels, height, width) to floats of mean 0 and variance 1 per channel.

    Args:
        mean: mean pixel of each channel in the training data, from 0 to 255.
        deviation: standard deviation of the pixels of each channel.
    """

    _mean: torch.Tensor
    _deviation: torch.Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        # Not in the state dict, because the values are properties of the data and not learned.
        for name, values in (("_mean", mean), ("_deviation", deviation)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return (pictures.float() - self._mean) / self._deviation
