"""Judges the runs of a candidate: can it still win, and is it worth its time?

A candidate is run with one seed after the other, and ended early for one of two reasons:

- too slow: the mean of its times over the seeds is already larger than the best time to the target
  of the candidates before it. It cannot win on these seeds, so this loses nothing.
- pruned: at some virtual time it is worse than three quarters of the complete candidates were at
  the same time (Optuna's PercentilePruner). Compared is the mean over the seeds begun so far, of
  all candidates over the same seeds. This is a guess from the course so far.

The verdict depends on the evaluations of the runs in the order of the seeds and of virtual time,
not on the order in which processes report them. So runs may run side by side, and further than
needed: what comes after the verdict is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from outpace.experiment.sweeping.candidate import SeedRun, Status, seed_run
from outpace.experiment.sweeping.objective import Objective
from outpace.experiment.trials import Ended, Point

STEPS: Final = 32  # reports of a run that takes as long as the first complete one
SEED_STEPS: Final = 1000  # reports of the second seed's run begin with this number


@dataclass(eq=False, slots=True)
class Run:
    """A run with one seed. points: until it reached the target; ended: None while it runs."""

    points: list[Point] = field(default_factory=list)
    reached: bool = False
    ended: Ended | None = None

    @property
    def over(self) -> bool:
        return self.reached or self.ended is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a candidate ends. at: number of its seed, and of that run's points that count."""

    status: Status
    at: tuple[int, int]
    error: str | None = None


class Judge:
    """Goes through the runs of a candidate once; see the head of this file.

    Args:
        runs: by seed; they may begin and continue while this judges.
        seeds: in the order in which they count.
        step_s: virtual time between two reports; None: not known, so there are no reports.
        prune: called with all reports when there is a new one; returns True to prune.

    Attributes:
        reports: what the study is told of the course: value by step.
    """

    def __init__(
        self,
        runs: Mapping[int, Run],
        seeds: Sequence[int],
        objective: Objective,
        step_s: float | None,
        prune: Callable[[Mapping[int, float], tuple[int, int]], bool],
    ) -> None:
        self._runs, self._seeds, self._objective = runs, seeds, objective
        self._step_s, self._prune = step_s, prune
        self._seed, self._point = 0, 0  # the next ones to look at
        self._step = 1  # of this seed, the next one to report
        self._before: list[SeedRun] = []  # the runs that are over
        self._courses: list[_Course] = [_Course()]  # of each seed begun
        self.reports: dict[int, float] = {}

    def verdict(self, bound_s: float | None) -> Verdict | None:
        """Judge as far as the runs have come; None: they have to continue.

        bound_s: the best mean time to the target so far; None: there is none.
        """
        while (run := self._runs.get(self._seeds[self._seed])) is not None:
            reached = False
            while not reached and self._point < len(run.points):
                point = run.points[self._point]
                self._point += 1
                self._courses[-1].add(point, self._objective)
                reached = self._objective.reached(point)
                if not reached and self._is_too_slow(point, bound_s):
                    return self._because("too-slow")
                if not reached and self._report(point.time_s, judge=True):
                    return self._because("pruned")
            if not reached:
                if run.ended is None:
                    return None
                if run.ended.status == "failed":
                    return self._because("failed", run.ended.error)
                if self._objective.kind == "time-to-target":
                    return self._because("missed")
            self._report(run.points[self._point - 1].time_s if self._point else 0.0, judge=False)
            if self._seed == len(self._seeds) - 1:
                return self._because("complete")
            self._before.append(self._described(early=False))
            self._courses.append(_Course())
            self._seed, self._point, self._step = self._seed + 1, 0, 1
        return None

    def described(self, early: bool) -> list[SeedRun]:
        """Return what is known of the runs, as far as this has gone.

        early: True if the last of them was ended, or is to be ended, at its last point so far.
        """
        begun = self._seeds[self._seed] in self._runs
        return [*self._before, *([self._described(early)] if begun else [])]

    def _described(self, early: bool) -> SeedRun:
        seed = self._seeds[self._seed]
        run = self._runs[seed]
        ended = None if early or run.reached else run.ended
        return seed_run(seed, run.points[: self._point], ended, self._objective)

    def _because(self, status: Status, error: str | None = None) -> Verdict:
        return Verdict(status, (self._seed, self._point), error)

    def _is_too_slow(self, point: Point, bound_s: float | None) -> bool:
        if self._objective.kind != "time-to-target" or bound_s is None:
            return False
        so_far_s = math.fsum([*(run.time_s for run in self._before), point.time_s])
        return so_far_s > bound_s * len(self._seeds)

    def _report(self, time_s: float, *, judge: bool) -> bool:
        """Report the steps up to `time_s`; True if the candidate is to be pruned."""
        if self._step_s is None:
            return False
        pruned = False
        while self._step < SEED_STEPS and time_s >= self._step * self._step_s * (1 - 1e-9):
            at_s = self._step * self._step_s * (1 + 1e-9)
            values = [course.at(at_s) for course in self._courses]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                mean = math.fsum(known) / len(known)
                self.reports[self._seed * SEED_STEPS + self._step] = self._objective.reported(mean)
                if judge and not pruned:
                    pruned = self._prune(self.reports, (self._seed, self._point))
            self._step += 1
        return pruned


class _Course:
    """The finite values of a run's evaluations."""

    def __init__(self) -> None:
        self._known: list[tuple[float, float]] = []

    def add(self, point: Point, objective: Objective) -> None:
        value = objective.value_of(point)
        if value is not None and math.isfinite(value):
            self._known.append((point.time_s, value))

    def at(self, time_s: float) -> float | None:
        """Return the last value until then; None if there is none."""
        return next((value for at_s, value in reversed(self._known) if at_s <= time_s), None)
