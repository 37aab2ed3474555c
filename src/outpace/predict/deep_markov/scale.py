"""Log run times, standardised: what the networks see."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

_WIDTH = 4.652695748081682  # of the middle 98 % of a standard normal distribution
_RANGE = 10.0  # what lies further out looks like that to the networks: a glitch, a new regime


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeScale:
    """centre: of each variable's log seconds, shape (N,). width: of all of them, shape ().

    Each worker is centred by its own median: workers differ for ever, and that need not be
    learned. They have one width in common, as how far a slow worker is from a normal one must
    mean the same for all, and a worker that was never slow has no width of its own. It is
    that of the middle 98 %: the quartiles would know nothing of slow nodes, and
    the standard deviation would be ruled by a single glitch.
    """

    centre: Tensor
    width: Tensor

    @classmethod
    def of(cls, logs: Tensor) -> RunTimeScale:
        """logs: shape (T, N), float64."""
        centre = logs.median(0).values
        rest = (logs - centre).flatten().sort().values
        low, high = (rest[round(q * (len(rest) - 1))] for q in (0.01, 0.99))
        width = ((high - low) / _WIDTH).clamp(min=1e-3)  # all the same: none
        return cls(centre.float(), width.float())

    def inward(self, logs: Tensor) -> Tensor:
        return ((logs - self.centre) / self.width).float().clamp(-_RANGE, _RANGE)

    def outward(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        return self.centre + self.width * mean, self.width * std
