"""The time of a study: how much of it is used and left, and what it suffices for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """How far a study has come.

    Attributes:
        phase: in words.
        done, planned: runs; those of later phases are planned, too.
    """

    phase: str
    done: int
    planned: int


class Budget:
    """The time of a study, and the runs that it is spent on.

    Attributes:
        whole_s: seconds of real time; infinite: until the study is complete.
        deadline_s: by `time.monotonic`, when the present phase ends.
        done: number of runs that have ended. planned: to the end of the study.

    Args:
        budget_s: seconds; None: until the study is complete.
        show: called with each state.
    """

    def __init__(
        self, budget_s: float | None = None, show: Callable[[State], None] = lambda _: None
    ) -> None:
        self.whole_s = math.inf if budget_s is None else budget_s
        self._show = show
        self._started_s = time.monotonic()
        self.deadline_s = self._started_s + self.whole_s
        self.phase, self.done, self.planned = "a run of BSP", 0, 1
        self.show()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    @property
    def left_s(self) -> float:
        """Seconds that the study has left; infinite without a budget."""
        return max(0.0, self.whole_s - self.elapsed_s)

    @property
    def over(self) -> bool:
        """True if the present phase has no time left."""
        return time.monotonic() >= self.deadline_s

    @property
    def one_run_s(self) -> float:
        """Mean real time for each run so far; infinite before the first."""
        return self.elapsed_s / self.done if self.done else math.inf

    @property
    def possible(self) -> float:
        """Estimated number of runs that the study has time for."""
        return self.left_s / self.one_run_s if self.done else math.inf

    def until(self, share: float) -> None:
        """Let the present phase end when this share of the budget is used."""
        self.deadline_s = self._started_s + share * self.whole_s

    def begin(self, phase: str, planned: int) -> None:
        """Begin a phase, with as many runs planned from now to the end of the study."""
        self.phase, self.planned = phase, self.done + planned
        self.show()

    def ended(self) -> None:
        """Count a run that has ended."""
        self.done += 1
        self.show()

    def show(self) -> None:
        self._show(State(self.phase, self.done, self.planned))
