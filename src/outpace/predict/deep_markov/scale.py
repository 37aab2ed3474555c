"""Log run times, and their standardisation for the networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outpace.predict.recorded.table import Seconds

_WIDTH = 4.652695748081682  # width of the middle 98 % of a standard normal distribution
_RANGE = 10.0  # values are clamped to it: a glitch, a new regime


def log_times(seconds: Seconds) -> Tensor:
    """Return the logarithms as a float64 tensor, for an array of any strides, writable or not."""
    return torch.from_numpy(np.array(seconds, dtype=np.float64, order="C")).log()


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeScale:
    """Centres and width by which log run times are standardised.

    Each worker is centred by its own median: workers differ permanently, and that need not be
    learned. They have one width in common, since the distance of a slow worker from a normal one
    must mean the same for all, and a worker that was never slow shows no width. It is that of
    the middle 98 %: quartiles miss slow nodes, and a single glitch rules the standard deviation.

    Args:
        centre: Of each variable's log seconds, shape (N,).
        width: Of all of them, shape ().
    """

    centre: Tensor
    width: Tensor

    @classmethod
    def of(cls, logs: Tensor) -> RunTimeScale:
        """Return the scale of log run times of shape (T, N), float64."""
        centre = logs.median(0).values
        rest = (logs - centre).flatten().sort().values
        low, high = (rest[round(q * (len(rest) - 1))] for q in (0.01, 0.99))
        width = ((high - low) / _WIDTH).clamp(min=1e-3)  # 0 if all are equal
        return cls(centre.float(), width.float())

    def inward(self, logs: Tensor) -> Tensor:
        return ((logs - self.centre) / self.width).float().clamp(-_RANGE, _RANGE)

    def outward(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        return self.centre + self.width * mean, self.width * std
