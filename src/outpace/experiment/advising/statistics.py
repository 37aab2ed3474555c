"""Statistics over fresh seeds: speed-ups, the strategy that they support, and the time of one run.

Finalists and BSP are run on the same seeds, which the search did not use. A speed-up is the
geometric mean, over these pairs, of the time of BSP divided by the time of the other strategy; its
logarithm is assumed to be normal over seeds.

The recommended strategy is the best of k strategies, so an ordinary interval would be too
optimistic. The lower end is valid for all k strategies at once: Student's t with error probability
2.5 % / k (Bonferroni), so the probability that any of the k lower ends exceeds its true value is at
most 2.5 %, whichever strategy is chosen. The upper end needs no such correction: the estimate of
the chosen strategy is at least the estimate of the truly best strategy, whose true value is the
largest. So the upper end is too low only if the upper end of the truly best strategy is too low.
Decision 14 has the argument and simulations.

If the cluster file states errors, each fresh seed has run times that are drawn within them. Then
the spread over seeds contains the errors of the calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.experiment.advising.curves import Curve
from outpace.support.estimates import NOTHING, PREDICTED, Estimate, TimeTo, quantile, ratio_of

_TAIL: Final = 0.025
MIN_GAIN: Final = 0.05  # a smaller gain is not worth a change, unless the user says otherwise


def speedup(times: Sequence[TimeTo], reference: Sequence[TimeTo], family: int = 1) -> Estimate:
    """Return by what factor a strategy is sooner than a reference, over pairs of equal seeds.

    A pair in which only the reference missed the target has a lower bound of the factor, and the
    interval then has no upper end. A pair in which the strategy missed it has at most an upper
    bound, so there is no lower end. If runs of both missed it, the factor is unknown.

    m and s are the mean and the standard deviation of the logarithm over n pairs. The ends are
    exp(m ± t s / √n), with Student's t for n - 1 degrees of freedom.

    Args:
        family: number of strategies from which this one may be chosen; the lower end holds for
            all of them at once.
    """
    return ratio_of(reference, times, low_tail=_TAIL / family)


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy that the results on fresh seeds support.

    Attributes:
        name: name of the strategy: the reference, unless another strategy is reliably sooner, and
            its gain is large enough to be recommended (`min_gain` of `advise`).
        best: the strategy with the shortest time, even if it is not reliably sooner.
        speedups: speed-ups of every strategy over the reference, with simultaneous lower ends.
    """

    name: str
    best: str
    speedups: Mapping[str, Estimate]


def chosen(times: Mapping[str, Sequence[TimeTo]], reference: str, min_gain: float = 0.0) -> Choice:
    """Return the best strategy that is reliably sooner than the reference, or the reference.

    Args:
        times: times of each strategy on the same seeds.
        min_gain: the estimated factor must be at least 1 + this, since a significant gain may be
            too small to be worth a change.
    """
    family = max(1, len(times) - 1)
    found = {name: speedup(own, times[reference], family) for name, own in times.items()}
    found[reference] = Estimate(1.0, 1.0, 1.0)
    # A strategy that missed the target is not recommended.
    factors = {
        name: -math.inf if (mean := found[name].mean) is None else mean
        for name, own in times.items()
        if name == reference or all(each.reached for each in own)
    }
    reliable = [
        name
        for name, factor in factors.items()
        if (low := found[name].low) is not None and low > 1 and factor >= 1 + min_gain
    ]
    best = max(factors, key=factors.__getitem__, default=reference)
    return Choice(max(reliable, key=factors.__getitem__, default=reference), best, found)


def promised(curves: Sequence[Curve], others: Sequence[Curve], level: float) -> Estimate:
    """Return the time of one real run, or its ratio to another strategy's, with a 90 % interval.

    There are two sources of spread. Random numbers differ from seed to seed. And the target is
    noticed only at the first evaluation after it was reached, so a small difference in the loss can
    shift it by one evaluation. The first one is estimated from the times at which curves cross the
    target, interpolated between evaluations. For the second one the interval is widened by one
    evaluation.

    m and s are the mean and the standard deviation of n logarithms of crossing times or ratios, and
    g is the mean time between evaluations divided by the crossing time. The ends are exp(m - r) /
    (1 + g of the others) and exp(m + r) (1 + g), with r = t √(v + s² / n) and Student's t with n -
    1 degrees of freedom. v is the variance of one run. For a ratio it is the sum of two variances,
    since two real runs do not have the same run times, unlike simulated runs of one seed.

    Args:
        curves: curves of the strategy on the fresh seeds.
        others: curves of the other strategy on the same seeds; the times are divided by their
            times. Empty: the result is in seconds.
        level: value of the score at the target.
    """
    runs = [own for own in (curves, others) if own]
    times = np.array([[curve.crossing_s(level) or math.nan for curve in own] for own in runs])
    n = len(curves)
    if n < 2 or not (times > 0).all():
        return NOTHING
    logs = np.log(times)
    ratios = logs[0] - sum(logs[1:])
    shown = np.log([[c.time_to(level, math.nan).time_s for c in own] for own in runs])
    late, *late_others = (
        float(np.mean([curve.gap_s(level) for curve in own] / at))
        for own, at in zip(runs, times, strict=True)
    )
    variance = float(np.sum(np.var(logs, axis=1, ddof=1)) + np.var(ratios, ddof=1) / n)
    reach = quantile((1 - PREDICTED) / 2, n - 1) * math.sqrt(variance)
    centre = float(np.mean(ratios))
    return Estimate(
        math.exp(np.mean(shown[0] - sum(shown[1:]))),
        math.exp(centre - reach) / (1 + sum(late_others)),
        math.exp(centre + reach) * (1 + late),
    )
