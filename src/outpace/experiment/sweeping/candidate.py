"""A candidate of a sweep: its values, its runs, and why it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from outpace.experiment.sweeping.objective import Objective
from outpace.experiment.trials import Ended, Point
from outpace.support.estimates import mean_of

Status: TypeAlias = Literal[
    "complete",  # all seeds ended, and reached the target if there is one
    "pruned",  # worse than three quarters of the others at the same virtual time
    "too-slow",  # would need more virtual time than the best one needed
    "missed",  # a run ended without the target
    "failed",  # a run failed: it diverged, for example
    "invalid",  # the values do not make a configuration
    "interrupted",  # by Ctrl-C or the end of the budget
]
_CURVE: Final = 100  # points that are kept


@dataclass(frozen=True, slots=True)
class SeedRun:
    """A run of a candidate with one seed.

    Attributes:
        time_s: virtual time until the target; without it, until the end of the run.
        reached: the target; False if there is none.
        accuracy, train_loss: the last values that are known.
    """

    seed: int
    time_s: float
    reached: bool
    accuracy: float | None
    train_loss: float | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate that has ended.

    Attributes:
        number: from 0, in the order in which candidates began.
        values: by key.
        status: see `Status`.
        value: the mean of the objective over the seeds; None unless the status is complete.
        low, high: the 95 % interval of the mean; None with one seed.
        ended_at_s: mean virtual time of its runs when they reached the target or ended.
        error: why a run failed, or the values make no configuration.
        runs: one for each seed that was begun.
        curve: pairs of the virtual time, in s, and the quantity of the objective, of the first
            seed.
    """

    number: int
    values: dict[str, Any]
    status: Status
    value: float | None = None
    low: float | None = None
    high: float | None = None
    ended_at_s: float | None = None
    error: str | None = None
    runs: tuple[SeedRun, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(plain: dict[str, Any]) -> Candidate:
        """Return the candidate that `plain` described."""
        runs = tuple(SeedRun(**run) for run in plain["runs"])
        curve = tuple((time_s, value) for time_s, value in plain["curve"])
        return Candidate(**{**plain, "runs": runs, "curve": curve})


def seed_run(seed: int, points: Sequence[Point], ended: Ended | None, to: Objective) -> SeedRun:
    """Return what is known of a run; ended: None if it is under way."""
    at_target = next((point for point in points if to.reached(point)), None)
    last_s = points[-1].time_s if points else 0.0
    if ended is not None and isinstance(time_s := ended.summary.get("virtual_time_s"), float | int):
        last_s = max(last_s, float(time_s))
    return SeedRun(
        seed,
        last_s if at_target is None else at_target.time_s,
        at_target is not None,
        _last(points, "accuracy"),
        _last(points, "train_loss"),
    )


def completed(
    number: int, values: dict[str, Any], runs: Sequence[SeedRun], to: Objective
) -> Candidate:
    """Return a candidate whose runs have ended: complete, missed or failed."""
    if to.kind == "time-to-target":
        if not all(run.reached for run in runs):
            return Candidate(number, values, "missed")
        results = [run.time_s for run in runs]
    elif to.kind == "time":
        results = [run.time_s for run in runs]
    else:
        known = [run.accuracy if to.quantity == "accuracy" else run.train_loss for run in runs]
        results = [value for value in known if value is not None and math.isfinite(value)]
        if len(results) < len(runs):
            why = f"a run has no {'accuracy' if to.maximized else 'training loss'} at its end"
            return Candidate(number, values, "failed", error=why)
    mean = mean_of(results)
    if to.kind in ("time-to-target", "time"):
        mean = mean.not_below(0.0)
    return Candidate(number, values, "complete", mean.mean, mean.low, mean.high)


def curve_of(points: Sequence[Point], to: Objective) -> tuple[tuple[float, float], ...]:
    """Return times and values of the evaluations, at most about 100, with the first and last."""
    known = [
        (point.time_s, value)
        for point in points
        if (value := to.value_of(point)) is not None and math.isfinite(value)
    ]
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


def _last(points: Sequence[Point], name: str) -> float | None:
    values = [getattr(point, name) for point in points]
    return next((value for value in reversed(values) if value is not None), None)
