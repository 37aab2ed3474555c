"""HPSGD: workers go on training while their gradients are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from outpace.checks import require
from outpace.sync.ssgd import AllReduce

Commit: TypeAlias = Literal["immediate", "delayed"]
_MOST: Final = 2**31


@dataclass(frozen=True, slots=True)
class Hpsgd:
    """Computes on a local replica while the sum of earlier gradients is all-reduced.

    (`programs.hpsgd`; HPSGD, section 3.) commit: when the averaged gradients change the global
    model: as soon as they are there, or, as the paper prints it, when the next
    synchronization begins. window: at most so many gradients are gathered while one is under
    way, then the worker waits; None: it never does. Raises ValueError if `window` is not positive.
    """

    commit: Commit = "immediate"
    window: int | None = None
    all_reduce: AllReduce = "ring"
    kind: Literal["hpsgd"] = "hpsgd"

    def __post_init__(self) -> None:
        fits = self.window is None or 0 < self.window < _MOST
        require(fits, "window", "from 1 to 2^31 − 1", self.window)
