"""Carries out the trials of a study in a pool of processes, within the time of its budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from outpace.experiment.advising.budget import Budget
from outpace.experiment.advising.curves import Curve, Ending, Trial
from outpace.experiment.advising.problem import Problem
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.experiment.trials.pool import Event

_LATE: Final = "there is no time left in the budget"


def events_of(pool: Pool, orders: Sequence[Order], budget: Budget) -> Iterator[Event]:
    """Carry out runs, and yield what happens until all have ended; the deadline stops them."""
    left = {order.key for order in orders if not budget.over}
    for order in orders:
        if order.key in left:
            pool.start(order)
    stopped = False
    while left:
        if budget.over and not stopped:
            stopped = True
            for key in left:
                pool.stop(key, _LATE)
        left_s = max(0.0, budget.deadline_s - time.monotonic())
        for event in pool.wait(None if stopped or left_s == math.inf else left_s):
            if isinstance(event, Ended):
                left.discard(event.key)
            yield event


@dataclass(slots=True)
class _Open:
    """A trial that has not ended.

    Attributes:
        ending: decided from its points; None: not yet.
    """

    started_s: float
    times_s: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    ending: Ending | None = None


class PoolRunner:
    """Runs trials, as many at a time as the pool allows.

    Attributes:
        every_s: returns the virtual time from one evaluation to the next of a trial; None: as
            configured.
        cost_s: processor time of all trials; of a script, real time.
    """

    def __init__(self, problem: Problem, pool: Pool, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        self.every_s: Callable[[Trial], float | None] = lambda _: None
        self.cost_s = 0.0
        self._pool = pool
        self._ended_s = 0.0  # when the last trial ended

    @property
    def over(self) -> bool:
        return self.budget.over

    def run(
        self, trials: Sequence[Trial], folder_of: Callable[[Trial], Path | None] = lambda _: None
    ) -> Iterator[tuple[Trial, Curve]]:
        """Yield the trials with their curves as they end; see `search.Runner`.

        folder_of: returns the folder for the results of a trial, or None.
        """
        under_way = {trial: _Open(time.monotonic()) for trial in trials}
        orders = [
            Order(t, self.problem.experiment(t, self.every_s(t)), folder_of(t), t.candidate)
            for t in trials
        ]
        for event in events_of(self._pool, orders, self.budget):
            trial = event.key
            assert isinstance(trial, Trial)
            known = under_way[trial]
            if isinstance(event, Point):
                self._take(trial, known, event)
                continue
            curve = self._curve(known, event)
            self.cost_s += curve.cost_s
            if known.ending is not None or event.status != "stopped":
                self.budget.ended()
                yield trial, curve

    def _take(self, trial: Trial, known: _Open, point: Point) -> None:
        """Note an evaluation, and stop the trial if it needs no more of them."""
        score = self.problem.target.score(point.accuracy, point.train_loss)
        if known.ending is not None or score is None:
            return
        known.times_s.append(point.time_s)
        known.scores.append(score)
        best = max(known.scores)
        if best >= self.problem.target.level:
            known.ending = "reached" if point.time_s >= trial.until_s else None
        elif trial.bound.stops(point.time_s, best):
            known.ending = "stopped"
        if known.ending is not None:
            self._pool.stop(trial, "the advice needs no more of this run")

    def _curve(self, known: _Open, end: Ended) -> Curve:
        cost_s = end.cpu_s
        if self.problem.is_script:  # its processes are not counted by the pool, and it is alone
            cost_s = time.monotonic() - max(known.started_s, self._ended_s)
            self._ended_s = time.monotonic()
        ending: Ending = known.ending or ("failed" if end.status == "failed" else "end")
        if ending == "end" and max(known.scores, default=-math.inf) >= self.problem.target.level:
            ending = "reached"
        error = end.error if ending == "failed" else None
        totals = _totals(end.summary)
        return Curve.of(known.times_s, known.scores, ending, error, cost_s, totals)


def _totals(summary: Mapping[str, Any]) -> dict[str, float]:
    iterations = summary.get("iterations") or [0]
    parameters = (summary.get("script") or {}).get("parameters")
    return {
        **summary.get("seconds", {}),
        "iterations": sum(iterations) / len(iterations),
        **({"parameters": float(parameters)} if isinstance(parameters, int) else {}),
    }
