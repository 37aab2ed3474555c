"""Carries out the trials of a study in a pool of processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from outpace.experiment.advising.question.curves import Curve, Ended, Goal, Trial
from outpace.experiment.advising.question.problem import Problem
from outpace.experiment.trials import Ended as TrialEnded
from outpace.experiment.trials import Order, Point, Pool

_LATE: Final = "there is no time left in the budget"


@dataclass(slots=True)
class _Open:
    """A trial that is under way."""

    trial: Trial
    started_s: float
    first_s: float = 0.0  # when its first evaluation was received
    times_s: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    ended: Ended | None = None  # decided from its points; None: not yet

    def took_s(self) -> float:
        """Return the real time of the trial, without the start of its process if that is known."""
        now_s, count = time.monotonic(), len(self.times_s)
        if count < 2:
            return now_s - self.started_s
        return (now_s - self.first_s) * count / (count - 1)

    def take(self, point: Point, goal: Goal) -> bool:
        """Note an evaluation; return True if the trial ends with it."""
        score = goal.score(point.accuracy, point.train_loss)
        if self.ended is not None or score is None:
            return False
        self.first_s = self.first_s or time.monotonic()
        self.times_s.append(point.time_s)
        self.scores.append(score)
        best = max(score, max(self.scores))
        if best >= goal.level:
            self.ended = "reached" if point.time_s >= self.trial.until_s else None
        elif self.trial.bound.stops(point.time_s, best):
            self.ended = "stopped"
        return self.ended is not None


class PoolRunner:
    """Runs trials, as many at a time as the pool allows.

    Attributes:
        every_s: returns the virtual time from one evaluation to the next of a trial; None: as
            configured.
        deadline_s: by `time.monotonic`, when trials are given up; None: never.
    """

    def __init__(self, problem: Problem, pool: Pool, deadline_s: float | None = None) -> None:
        self.problem, self.deadline_s = problem, deadline_s
        self.every_s: Callable[[Trial], float | None] = lambda _: None
        self.cost_s = 0.0  # processor time of all trials
        self.done = 0  # trials that have ended
        self.took_s = 0.0  # real time of the last trial that has ended
        self.ticked: Callable[[], None] = lambda: None  # called after each event
        self._pool = pool
        self._ended_s = 0.0  # when the last trial ended

    @property
    def over(self) -> bool:
        return self.deadline_s is not None and time.monotonic() >= self.deadline_s

    def run(
        self,
        trials: Sequence[Trial],
        folder_of: Callable[[Trial], Path | None] = lambda _: None,
    ) -> Iterator[tuple[Trial, Curve]]:
        """Yield the trials with their curves as they end; see `search.Runner`.

        folder_of: returns the folder for the results of a trial, or None.
        """
        under_way: dict[Trial, _Open] = {}
        for trial in trials:
            if self.over:
                break
            experiment = self.problem.experiment(trial, self.every_s(trial))
            under_way[trial] = _Open(trial, time.monotonic())
            self._pool.start(Order(trial, experiment, folder_of(trial), trial.candidate))
        given_up = False
        while under_way:
            if self.over and not given_up:
                given_up = True
                for trial in under_way:
                    self._pool.stop(trial, _LATE)
            left_s = None
            if self.deadline_s is not None and not given_up:
                left_s = max(0.0, self.deadline_s - time.monotonic())
            for event in self._pool.wait(left_s):
                known = under_way.get(event.key)  # type: ignore[call-overload]
                if known is None:
                    continue
                if isinstance(event, Point):
                    if known.take(event, self.problem.goal):
                        self._pool.stop(event.key, "the advice needs no more of this run")
                    continue
                del under_way[known.trial]
                curve = self._curve(known, event)
                self.took_s = max(curve.cost_s, known.took_s())
                self.cost_s += curve.cost_s
                self.done += known.ended is not None or event.status != "stopped"
                if known.ended is not None or event.status != "stopped":
                    yield known.trial, curve
            self.ticked()

    def _curve(self, known: _Open, end: TrialEnded) -> Curve:
        cost_s = end.cpu_s
        if self.problem.is_script:  # its processes are not counted by the pool, and it is alone
            cost_s = time.monotonic() - max(known.started_s, self._ended_s)
            self._ended_s = time.monotonic()
        ended: Ended = known.ended or ("failed" if end.status == "failed" else "end")
        best = max(known.scores, default=-math.inf)
        if ended == "end" and best >= self.problem.goal.level:
            ended = "reached"
        return Curve.of(
            known.times_s,
            known.scores,
            ended,
            end.error if ended == "failed" else None,
            cost_s,
            _totals(end.summary),
        )


def _totals(summary: Mapping[str, Any]) -> dict[str, float]:
    iterations = summary.get("iterations") or [0]
    parameters = (summary.get("script") or {}).get("parameters")
    return {
        **summary.get("seconds", {}),
        "iterations": sum(iterations) / len(iterations),
        **({"parameters": float(parameters)} if isinstance(parameters, int) else {}),
    }
