"""Carries out the runs of a study in a pool of processes, within the study's budget of time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from outpace.experiment.advising.curves import Curve, Trial
from outpace.experiment.advising.problem import Problem
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.experiment.trials.pool import Event
from outpace.support.targets import Target

_LATE: Final = "there is no time left in the budget"


Show: TypeAlias = Callable[[str, int, int], None]
"""Called with the text of the phase, the number of runs that have ended, and the number planned."""


class Budget:
    """The time of a study, and its use for runs.

    Attributes:
        done: number of runs that have ended. planned: number of runs to the end of the study.
        is_cut: True if runs were left out for lack of time.

    Args:
        whole_s: seconds of real time; infinite: until the study is complete.
        show: called after each run.
    """

    def __init__(self, whole_s: float = math.inf, show: Show = lambda *_: None) -> None:
        self.whole_s, self.done, self.planned, self.is_cut = whole_s, 0, 1, False
        self._show = show
        self._started_s = time.monotonic()
        self._deadline_s = self._started_s + whole_s
        self.begin("a run of BSP")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    @property
    def left_s(self) -> float:
        """Seconds that are left for the present phase."""
        return max(0.0, self._deadline_s - time.monotonic())

    @property
    def over(self) -> bool:
        """True if the present phase has no time left."""
        return self.left_s <= 0

    @property
    def one_run_s(self) -> float:
        """Mean real time for each run so far; infinite before the first."""
        return self.elapsed_s / self.done if self.done else math.inf

    @property
    def possible(self) -> float:
        """Estimated number of runs that the study has time for."""
        return max(0.0, self.whole_s - self.elapsed_s) / self.one_run_s

    @property
    def missing_s(self) -> float:
        """Estimated time of the runs that are planned and have not been carried out."""
        return max(0, self.planned - self.done) * self.one_run_s

    def until(self, share: float) -> None:
        """Let the present phase end when this share of the budget is used."""
        self._deadline_s = self._started_s + share * self.whole_s

    def begin(self, phase: str) -> None:
        self._phase = phase
        self._show(phase, self.done, self.planned)

    def ended(self) -> None:
        """Count a run that has ended."""
        self.done += 1
        self._show(self._phase, self.done, self.planned)


def events_of(pool: Pool, orders: Sequence[Order], budget: Budget) -> Iterator[Event]:
    """Carry out runs, and yield events until all have ended; the deadline stops them."""
    left = set() if budget.over else {order.key for order in orders}
    budget.is_cut |= len(left) < len(orders)
    for order in orders if left else ():
        pool.start(order)
    stopped = False
    while left:
        if budget.over and not stopped:
            stopped = budget.is_cut = True
            for key in left:
                pool.stop(key, _LATE)
        for event in pool.wait(None if stopped or budget.left_s == math.inf else budget.left_s):
            if isinstance(event, Ended):
                left.discard(event.key)
            yield event


def carry_out(
    trials: Sequence[Trial], problem: Problem, pool: Pool, budget: Budget
) -> Iterator[tuple[Trial, Curve]]:
    """Run trials, in parallel as far as the pool allows, and yield them with their curves.

    A trial ends when it has reached the target, or at its limit. Trials that had no time left are
    omitted.
    """
    target = problem.target
    orders = [Order(trial, problem.experiment(trial), name=trial.candidate) for trial in trials]
    reached: set[Trial] = set()
    for event in events_of(pool, orders, budget):
        trial = event.key
        assert isinstance(trial, Trial)
        if isinstance(event, Point):
            score = target.score(event.accuracy, event.train_loss)
            if score is not None and score >= target.level and trial not in reached:
                reached.add(trial)
                pool.stop(trial, "it has reached the target")
        elif event.status != "stopped" or trial in reached:
            budget.ended()
            yield trial, _curve(event, target)


def _curve(end: Ended, target: Target) -> Curve:
    """Return the curve of a trial, without evaluations after it should have stopped."""
    times_s: list[float] = []
    scores: list[float] = []
    for point in end.points:
        score = target.score(point.accuracy, point.train_loss)
        if score is None:
            continue
        times_s.append(point.time_s)
        scores.append(score)
        if score >= target.level:
            break
    error = end.error if end.status == "failed" else None
    return Curve(tuple(times_s), tuple(scores), error, _totals(end.summary))


def _totals(summary: Mapping[str, Any]) -> dict[str, float]:
    iterations = summary.get("iterations") or [0]
    parameters = (summary.get("script") or {}).get("parameters")
    return {
        **summary.get("seconds", {}),
        "iterations": sum(iterations) / len(iterations),
        **({"parameters": float(parameters)} if isinstance(parameters, int) else {}),
    }
