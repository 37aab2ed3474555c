"""The candidates of a sweep that are under way: can one still win, and is it worth its time?

A candidate is run with one seed after the other, and ended early for one of two reasons:

- too slow: the mean of its times over the seeds is already larger than the best time to the target
  of the candidates before it. It cannot win on these seeds, so this loses nothing.
- pruned: with the first seed, it is at some virtual time worse than three quarters of the complete
  candidates were at the same time (Optuna's PercentilePruner). This is a guess from the course so
  far.

`verdict` depends on the evaluations of the runs in the order of the seeds and of virtual time, not
on the order in which processes report them. What comes after the verdict is left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.experiment.trials import Ended, Point
from outpace.report.sweeps.result import Candidate, Objective, SeedRun, Status
from outpace.support.estimates import mean_of
from outpace.support.targets import Target
from outpace.tasks import Timing

if TYPE_CHECKING:
    from optuna import Trial

STEPS: Final = 32  # reports to the study of a run that takes as long as the first complete one
_CURVE: Final = 100  # points that are kept


@dataclass(eq=False, slots=True)
class Run:
    """A run with one seed. points: until it reached the target; ended: None while it runs."""

    seed: int
    points: list[Point] = field(default_factory=list)
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a candidate ends. at: number of its run, and of that run's points that count."""

    status: Status
    at: tuple[int, int]
    error: str | None = None


@dataclass(eq=False, slots=True)
class UnderWay:
    """A candidate that is not told to the study yet.

    Attributes:
        experiment: None if the values make none; `error` says why.
        runs: in the order of the seeds.
        pruned_at: number of the points of the first run after which it was to be pruned.
        verdict: with which its runs were ended.
    """

    trial: Trial
    values: dict[str, Any]
    experiment: Experiment | None
    runs: list[Run]
    error: str | None = None
    pruned_at: int | None = None
    verdict: Verdict | None = None

    @property
    def number(self) -> int:
        return self.trial.number

    @property
    def first_points(self) -> list[Point]:
        """The points of the first run that count."""
        points = self.runs[0].points
        if self.verdict is None or self.verdict.at[0] > 0:
            return points
        return points[: self.verdict.at[1]]


def verdict(candidate: UnderWay, objective: Objective, bound_s: float | None) -> Verdict | None:
    """Judge a candidate as far as its runs have come; None: they have to continue.

    Args:
        bound_s: the best mean time to the target of the candidates before it; None: there is none.
    """
    if candidate.experiment is None:
        return Verdict("invalid", (0, 0), candidate.error)
    before_s, runs = 0.0, candidate.runs
    for place, run in enumerate(runs):
        for count, point in enumerate(run.points, 1):
            if reaches(point, objective):
                before_s += point.time_s
                break
            total_s = before_s + point.time_s
            if objective.target and bound_s is not None and total_s > bound_s * len(runs):
                return Verdict("too-slow", (place, count))
            if place == 0 and count == candidate.pruned_at:
                return Verdict("pruned", (place, count))
        else:
            at = (place, len(run.points))
            if run.ended is None or run.ended.status == "stopped":
                return None
            if run.ended.status == "failed":
                return Verdict("failed", at, run.ended.error)
            if objective.target:
                return Verdict("missed", at)
    return Verdict("complete", (len(runs) - 1, len(runs[-1].points)))


def found(candidate: UnderWay, objective: Objective, judged: Verdict | None) -> Candidate:
    """Return what is known of a candidate that has ended. judged: None: it was interrupted."""
    status: Status = "interrupted" if judged is None else judged.status
    last, count = (len(candidate.runs), 0) if judged is None else judged.at
    is_early = status in ("too-slow", "pruned")
    runs = [
        _described(run, objective, count if place == last else None, is_early and place == last)
        for place, run in enumerate(candidate.runs[: last + 1])
        if run.points or run.ended is not None
    ]
    error = None if judged is None else judged.error
    known = Candidate(candidate.number, candidate.values, status, error=error)
    if status == "complete":
        known = _complete(known, runs, objective)
    if not runs:
        return known
    first = candidate.runs[0].points
    return dataclasses.replace(
        known,
        ended_at_s=math.fsum(run.time_s for run in runs) / len(runs),
        runs=tuple(runs),
        curve=_curve(first[:count] if last == 0 else first, objective),
    )


def _complete(known: Candidate, runs: Sequence[SeedRun], objective: Objective) -> Candidate:
    """Return a candidate with its value; as failed if a run has none."""
    name = "time_s" if objective.of_time else objective.quantity or ""
    values = [value for run in runs if (value := getattr(run, name)) is not None]
    if len(values) < len(runs) or not all(map(math.isfinite, values)):
        what = "accuracy" if objective.maximized else "training loss"
        return dataclasses.replace(known, status="failed", error=f"a run has no {what} at its end")
    mean = mean_of(values)
    if objective.of_time:
        mean = mean.not_below(0.0)
    return dataclasses.replace(known, value=mean.mean, low=mean.low, high=mean.high)


def _described(run: Run, objective: Objective, count: int | None, is_early: bool) -> SeedRun:
    """Return what is known of a run.

    Args:
        count: of its points that count; None: all.
        is_early: the run was ended, or is to be ended, at the last of them.
    """
    points = run.points[:count]
    at_target = next((point for point in points if reaches(point, objective)), None)
    last_s = points[-1].time_s if points else 0.0
    if run.ended is not None and not is_early:
        time_s = run.ended.summary.get("virtual_time_s")
        last_s = max(last_s, float(time_s)) if isinstance(time_s, float | int) else last_s
    return SeedRun(
        run.seed,
        last_s if at_target is None else at_target.time_s,
        at_target is not None,
        _last([point.accuracy for point in points]),
        _last([point.train_loss for point in points]),
    )


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def reaches(point: Point, objective: Objective) -> bool:
    """Return True if an evaluation has reached the target of the sweep."""
    target = objective.target
    return target is not None and target.is_reached(point.accuracy, point.train_loss)


def course(points: Sequence[Point], objective: Objective) -> list[tuple[float, float]]:
    """Return the times of evaluations, and their finite values of the objective's quantity."""
    if objective.quantity is None:
        return []
    known = ((point.time_s, getattr(point, objective.quantity)) for point in points)
    return [(at, value) for at, value in known if value is not None and math.isfinite(value)]


def _curve(points: Sequence[Point], objective: Objective) -> tuple[tuple[float, float], ...]:
    """Return at most about 100 points of the course, with the first and last."""
    known = course(points, objective)
    step = max(1, math.ceil(len(known) / _CURVE))
    return tuple(known[::step] if (len(known) - 1) % step == 0 else [*known[::step], known[-1]])


def in_order(candidates: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    """Return the candidates, the best first and those without a value last."""
    sign = -1 if objective.maximized else 1

    def key(each: Candidate) -> tuple[bool, float, int]:
        return each.value is None, sign * (each.value or 0.0), each.number

    return sorted(candidates, key=key)


def best_of(candidates: Sequence[Candidate], objective: Objective) -> Candidate | None:
    """Return the first of the best complete candidates; None if none is complete."""
    first = next(iter(in_order(candidates, objective)), None)
    return None if first is None or first.value is None else first


def objective_of(experiment: Experiment, has_accuracy: bool | None) -> Objective:
    """Return the objective that the configuration of a sweep asks for.

    Args:
        has_accuracy: of the task; None: not known, for a script.

    Raises:
        ConfigError: if a script has no target, or the task `timing` has one or no iterations.
    """
    target: Target | None = experiment.goal
    if isinstance(experiment.task, Timing):
        if target is not None:
            raise ConfigError("target.loss: the task timing has no loss; leave the target out")
        if experiment.stop.iterations is None:
            raise ConfigError(
                "stop.iterations is missing: with the task timing the virtual time of the run is "
                "compared, and a run that ends at a given time always takes as long"
            )
        return Objective("time")
    if target is not None:
        return Objective("time-to-target", target)
    if experiment.has_script:
        raise ConfigError(
            "what the script logs is not known before it runs: say what to look for with "
            "--target-accuracy or --target-loss"
        )
    return Objective("accuracy" if has_accuracy else "train_loss")
