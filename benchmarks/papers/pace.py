"""Seconds per iteration of a worker, and accuracy, of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

import numpy as np
from benchmarks.papers.curves import Curve


@dataclass(frozen=True, slots=True)
class Pace:
    """Means over the workers of a run, and the delayed pulls of all its servers.

    All are per 100 iterations. Means over workers rather than the last one's time: without a bound
    a fast worker is done long before the slowest.
    """

    seconds: float
    compute_s: float
    communicate_s: float  # and waiting for others
    delayed: float
    accuracy: float  # the mean over the last quarter of the evaluations

    def faster_than(self, other: Pace) -> float:
        """Return how many times faster this pace is."""
        return other.seconds / self.seconds


def pace(curve: Curve) -> Pace:
    """Return the pace of a run. Raises RuntimeError if the run failed."""
    if curve.error is not None:
        raise RuntimeError(f"{curve.name} failed: {curve.error}")
    iterations = sum(curve.summary["iterations"]) / curve.workers / 100
    spent = curve.summary["seconds"]
    compute, communicate = spent["compute"], spent["communicate"] + spent["wait"]
    return Pace(
        (compute + communicate) / iterations,
        compute / iterations,
        communicate / iterations,
        curve.summary["delayed_pulls"] / iterations,
        accuracy(curve),
    )


def mean_pace(curves: Sequence[Curve]) -> Pace:
    """Return the mean pace of runs with different seeds."""
    paces = [pace(curve) for curve in curves]
    return Pace(*(fmean(getattr(one, entry.name) for one in paces) for entry in fields(Pace)))


def accuracy(curve: Curve) -> float:
    """Return the mean accuracy over the last quarter of the evaluations, NaN without accuracies."""
    last = curve.accuracy[-max(1, len(curve.accuracy) // 4) :]
    return math.nan if None in last else sum(last) / len(last)


def percent_less(less: float, than: float) -> float:
    return 100 * (1 - less / than)


def listed(values: Iterable[float], digits: int = 1) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def accuracy_between(curve: Curve, start_s: float, end_s: float) -> float:
    """Return the mean accuracy between two times, interpolated linearly, constant after the end."""
    times = np.linspace(start_s, end_s, 101)
    return float(np.interp(times, curve.seconds, curve.accuracy).mean())
