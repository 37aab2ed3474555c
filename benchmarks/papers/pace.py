"""Seconds per iteration of a worker, and accuracy, of the runs of a variant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.papers.curves import Curve, Curves, last_quarter, require_complete
from benchmarks.papers.over_seeds import Spread, over_seeds


@dataclass(frozen=True, slots=True)
class Pace:
    """Means over the workers of a run, and the delayed pulls of all its servers, over seeds.

    All are per 100 iterations. Means over workers rather than the last one's time: without a bound
    a fast worker is done long before the slowest.
    """

    seconds: Spread
    compute_s: Spread
    communicate_s: Spread  # and waiting for others
    delayed: Spread
    accuracy: Spread  # the mean over the last quarter of the evaluations

    def faster_than(self, other: Pace) -> Spread:
        """Return how many times faster this pace is."""
        return other.seconds / self.seconds


def pace(runs: Sequence[Curve]) -> Pace:
    """Return the pace of the runs of a variant. Raises RunError if one of them failed."""
    require_complete(runs)
    compute = over_seeds(runs, lambda run: run.summary["seconds"]["compute"] / _hundreds(run))
    others = over_seeds(runs, _not_computing)
    return Pace(
        compute + others,
        compute,
        others,
        over_seeds(runs, lambda run: run.summary["delayed_pulls"] / _hundreds(run)),
        over_seeds(runs, accuracy),
    )


def paces_of(curves: Curves) -> dict[str, Pace]:
    """Return the pace of each variant. Raises RunError if a run failed."""
    return {name: pace(runs) for name, runs in curves.items()}


def _not_computing(run: Curve) -> float:
    spent = run.summary["seconds"]
    return float((spent["communicate"] + spent["wait"]) / _hundreds(run))


def _hundreds(run: Curve) -> float:
    """Return the iterations of a mean worker, in hundreds."""
    return sum(run.summary["iterations"]) / run.workers / 100


def accuracy(curve: Curve) -> float:
    """Return the mean accuracy over the last quarter of the evaluations, NaN without accuracies."""
    return math.nan if None in curve.accuracy else last_quarter(curve.accuracy)


def percent_less(less: Spread, than: Spread) -> Spread:
    return (less / than - 1.0) * -100.0


def listed(values: Iterable[float | Spread], digits: int = 1) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def accuracy_at_end(curve: Curve) -> float:
    """Return the mean accuracy over the last tenth of the run."""
    return accuracy_between(curve, 0.9 * curve.seconds[-1], curve.seconds[-1])


def accuracy_between(curve: Curve, start_s: float, end_s: float) -> float:
    """Return the mean accuracy between two times, interpolated linearly, constant after the end."""
    times = np.linspace(start_s, end_s, 101)
    return float(np.interp(times, curve.seconds, curve.accuracy).mean())
