"""Pictures of bytes, made numbers when they are used: a quarter of the memory until then."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Pixels(nn.Module):
    """Bytes (n, channels, height, width) → numbers of mean 0 and variance 1, by channel.

    mean, deviation: of a pixel of each channel of the training data, in 0 to 255.
    """

    _mean: torch.Tensor
    _deviation: torch.Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        # Not in the state dict: it is a property of the data, not learned.
        for name, values in (("_mean", mean), ("_deviation", deviation)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return (pictures.float() - self._mean) / self._deviation
