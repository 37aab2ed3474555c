"""HPSGD: workers go on training while their gradients are averaged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from outpace.support.checks import require
from outpace.sync.peers.ssgd_settings import TIMEOUT_S, AllReduce, Buffers, Wire, require_timeout

Commit: TypeAlias = Literal["immediate", "delayed"]
RateByWindow: TypeAlias = Literal["linear", "sqrt", "constant"]
_MOST: Final = 2**31
_GROWTH_LOST: Final = {"linear": 0.0, "sqrt": 0.5, "constant": 1.0}  # as a power of the window


@dataclass(frozen=True, slots=True)
class Hpsgd:
    """Computes on a local replica while the sum of earlier gradients is all-reduced.

    (`programs.hpsgd`; HPSGD, section 3.) commit: when the averaged gradients change the global
    model: as soon as they are there, or, as the paper prints it, when the next
    synchronization begins. window: at most so many gradients are gathered while one is under
    way, then the worker waits; None: it never does. rate_by_window: how the learning rate of a
    commit grows with the iterations in it, on average over the workers: the paper adds them up,
    which is linear. timeout_s, buffers: as in `Ssgd`. synchronizer: what synchronises for real,
    beside the training: a thread of it, or a process that shares memory with it. Raises ValueError
    if `window` is not positive.
    """

    commit: Commit = "immediate"
    window: int | None = None
    rate_by_window: RateByWindow = "linear"
    all_reduce: AllReduce = "ring"
    wire: Wire = "full"
    timeout_s: float = TIMEOUT_S
    buffers: Buffers = "average"
    synchronizer: Literal["thread", "process"] = "thread"
    kind: Literal["hpsgd"] = "hpsgd"

    def __post_init__(self) -> None:
        require_timeout(self.timeout_s)
        fits = self.window is None or 0 < self.window < _MOST
        require(fits, "window", "from 1 to 2^31 − 1", self.window)

    def divisor(self, window: float) -> float:
        """Of the sum over so many iterations."""
        return math.pow(window, _GROWTH_LOST[self.rate_by_window])
