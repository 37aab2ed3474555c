"""How far a study has come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_FEW: Final = 5  # runs: after fewer, their mean time says little


@dataclass(frozen=True, slots=True)
class State:
    """How far a study has come.

    Attributes:
        phase: in words.
        done, planned: runs; those of later phases are planned, too.
        left_s: estimate of the seconds that are left; None: not known yet.
    """

    phase: str
    done: int
    planned: int
    left_s: float | None


class Progress:
    """Counts the runs of a study, and estimates how long it still takes.

    Args:
        budget_s: seconds after which it ends; None: when it is complete.
        show: called with each state.
    """

    def __init__(self, budget_s: float | None, show: Callable[[State], None]) -> None:
        self._budget_s, self._show = budget_s, show
        self._started_s = time.monotonic()
        self.phase, self.done, self.planned = "a run of BSP", 0, 1

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def begin(self, phase: str, planned: int) -> None:
        """Begin a phase, with as many runs planned from now to the end of the study."""
        self.phase, self.planned = phase, self.done + planned
        self.show()

    def show(self) -> None:
        self._show(State(self.phase, self.done, self.planned, self.left_s()))

    def left_s(self) -> float | None:
        """Return the estimated seconds to the end: the mean time per run so far, times runs."""
        ends = [] if self._budget_s is None else [self._budget_s - self.elapsed_s]
        if self.done >= _FEW:
            ends.append(self.for_runs_s(self.planned - self.done))
        return max(0.0, min(ends)) if ends else None

    def for_runs_s(self, runs: int) -> float:
        """Return the estimated time of this many runs."""
        return runs * self.elapsed_s / self.done if self.done else math.inf

    def possible(self) -> float:
        """Return the estimated number of runs that there is time for until the budget is over."""
        if self._budget_s is None or not self.done:
            return math.inf
        return max(0.0, self._budget_s - self.elapsed_s) / self.for_runs_s(1)
