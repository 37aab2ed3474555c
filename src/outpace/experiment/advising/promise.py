"""The promise for real runs: how long one takes, and how much sooner than BSP it is.

Three things decide how far a real run may be from the mean of the simulated ones:

- chance, as it differs from seed to seed;
- the error of the calibration, which is the same for all seeds;
- the evaluations: a run shows the target at the first evaluation after it has reached it. A script
  that logs rarely may show it one evaluation earlier or later for a small difference in the loss.

So the spread is that of the times at which curves cross the target, interpolated between
evaluations; and the interval ends one evaluation later than these times do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from outpace.experiment.advising.curves import Curve
from outpace.report.advice.result import Promise
from outpace.support.estimates import NOTHING, PREDICTED, Estimate, quantile


def one_run(curves: Sequence[Curve], level: float, error: float | None) -> Promise:
    """Return the intervals for the time to the target of one real run of a strategy, in seconds.

    With m and s the mean and the standard deviation of the logarithms of n crossings, e the
    relative error of the prediction and g the mean gap between evaluations, they end at exp(m - r)
    and exp(m + r) + g. r = t √(s² (1 + 1/n) + e²), Student's t with n - 1 degrees of freedom; for
    the error alone, r = z e.

    Args:
        curves: of the strategy on the fresh seeds.
        level: score of the target.
        error: relative standard error of predicted times; None: unknown.
    """
    if not _usable(curves, level):
        return Promise(error=error)
    mean = _geometric(_shown_s(curves, level))
    values = _crossed_s(curves, level)
    centre = _geometric(values)
    late_s = mean_gap_s(curves, level) or 0.0

    def around(reach: float) -> Estimate:
        return Estimate(mean, centre * math.exp(-reach), centre * math.exp(reach) + late_s)

    further = _variance(values) * (1 + 1 / len(values))
    return _promise(further, len(values), error, around)


def one_pair(
    curves: Sequence[Curve], reference: Sequence[Curve], level: float, error: float | None
) -> Promise:
    """Return the intervals for how much sooner one real run is than one of the reference.

    As `one_run`, with the ratios of crossings of equal seeds. Simulated runs of one seed have the
    same run times, and two real runs do not: so the variance of a further ratio is the sum of both
    variances, and that of the mean is that of the pairs, divided by n. The strategy may be seen one
    evaluation late, which divides the ratio by 1 + g / c, with its gap g and its crossing c; and so
    may the reference, which multiplies the ratio.

    Args:
        reference: of the reference on the same seeds.
        error: relative standard error of predicted ratios; None: unknown.
    """
    if len(curves) != len(reference) or not _usable([*curves, *reference], level):
        return Promise(error=error)
    shown = zip(_shown_s(curves, level), _shown_s(reference, level), strict=True)
    mean = _geometric([other / own for own, other in shown])
    own, others = _crossed_s(curves, level), _crossed_s(reference, level)
    values = [other / each for each, other in zip(own, others, strict=True)]
    centre = _geometric(values)
    late, reference_late = (
        float(np.mean([curve.gap_s(level) / at for curve, at in zip(some, times, strict=True)]))
        for some, times in ((curves, own), (reference, others))
    )

    def around(reach: float) -> Estimate:
        low = centre * math.exp(-reach) / (1 + late)
        return Estimate(mean, low, centre * math.exp(reach) * (1 + reference_late))

    further = _variance(own) + _variance(others) + _variance(values) / len(values)
    return _promise(further, len(values), error, around)


def mean_gap_s(curves: Sequence[Curve], level: float) -> float | None:
    """Return the mean time between the evaluations around the target; None without runs."""
    return float(np.mean([curve.gap_s(level) for curve in curves])) if curves else None


def _usable(curves: Sequence[Curve], level: float) -> bool:
    return len(curves) > 1 and all((curve.crossing_s(level) or 0) > 0 for curve in curves)


def _shown_s(curves: Sequence[Curve], level: float) -> list[float]:
    """Return the times of the first evaluations that show the target."""
    return [curve.time_to(level).time_s for curve in curves]


def _crossed_s(curves: Sequence[Curve], level: float) -> list[float]:
    """Return the times at which curves cross the target, interpolated between evaluations."""
    return [curve.crossing_s(level) or 0.0 for curve in curves]


def _geometric(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(float(np.mean(np.log(values))))


def _variance(values: Sequence[float]) -> float:
    """Return the variance of the logarithms."""
    return float(np.var(np.log(values), ddof=1))


def _promise(
    further: float, n: int, error: float | None, around: Callable[[float], Estimate]
) -> Promise:
    """Return the intervals.

    Args:
        further: variance of a further logarithm around the mean of n.
        around: returns the interval with a reach of the logarithm.
    """
    tail = (1 - PREDICTED) / 2
    student = quantile(tail, n - 1)
    seeds = around(student * math.sqrt(further))
    if error is None:
        return Promise(seeds, NOTHING, seeds, None)
    alone = around(quantile(tail) * error)
    return Promise(seeds, alone, around(student * math.sqrt(further + error**2)), error)
