"""Estimates over the seeds of a comparison: means with intervals, and paired ratios.

Intervals are 95 % confidence intervals of Student's t for the mean over seeds. Only the interval of
`next_of` is a prediction interval for one more run. Variants run on the same seeds, so data,
weights and run times are common to a pair of runs, and ratios are formed seed by seed. A run that
missed the target counts as a lower bound (it is censored), not as absent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TAIL: Final = 0.025  # probability beyond each end of a 95 % interval
PREDICTED: Final = 0.9  # probability that a prediction interval contains a further run


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and its interval; None where the runs do not determine a value.

    With one seed, `low` and `high` are None. If runs missed the target, `mean` is a bound, and one
    end of the interval is None.
    """

    mean: float | None
    low: float | None = None
    high: float | None = None

    def excludes(self, value: float) -> bool:
        """True if the interval lies above or below the value."""
        above = self.low is not None and self.low > value
        return above or (self.high is not None and self.high < value)

    def within(self, least: float, most: float = math.inf) -> Estimate:
        """Return the estimate of a quantity with these bounds; Student's t knows no bounds.

        Args:
            least: lower bound; 0 for a time or a share.
            most: upper bound; 1 for a share.
        """
        low = None if self.low is None else max(least, self.low)
        return Estimate(self.mean, low, None if self.high is None else min(self.high, most))


NOTHING: Final = Estimate(None)


@dataclass(frozen=True, slots=True)
class TimeTo:
    """Seconds until a run reached the target, or until it ended without reaching it."""

    time_s: float
    reached: bool


def mean_of(values: Sequence[float], low_tail: float = _TAIL) -> Estimate:
    """Return the mean of the values with its interval; NOTHING if there are none.

    Args:
        low_tail: probability that the true mean is below the interval.
    """
    n = len(values)
    if n == 0:
        return NOTHING
    mean = statistics.fmean(values)
    if n == 1:
        return Estimate(mean)
    error = statistics.stdev(values) / math.sqrt(n)
    low, high = (quantile(tail, n - 1) * error for tail in (low_tail, _TAIL))
    return Estimate(mean, mean - low, mean + high)


def next_of(values: Sequence[float]) -> Estimate:
    """Return the mean of the values, and an interval that contains a further value (90 %).

    The interval is mean ± t s √(1 + 1/n), with Student's t of n - 1 degrees of freedom (Hahn,
    Meeker: Statistical intervals, 1991, section 4.7), for values from a normal law.
    """
    n = len(values)
    if n < 2:
        return mean_of(values)
    mean = statistics.fmean(values)
    reach = quantile((1 - PREDICTED) / 2, n - 1) * statistics.stdev(values) * math.sqrt(1 + 1 / n)
    return Estimate(mean, mean - reach, mean + reach)


def mean_time(times: Sequence[TimeTo]) -> Estimate:
    """Return the mean time in seconds; a lower bound if a run missed the target."""
    found = mean_of([each.time_s for each in times]).within(0.0)
    if all(each.reached for each in times):
        return found
    return Estimate(found.mean, found.low, None)


def ratio_of(
    times: Sequence[TimeTo], first: Sequence[TimeTo], *, low_tail: float = _TAIL
) -> Estimate:
    """Return the geometric mean of time / time of the first variant, over pairs of equal seeds.

    The interval is computed for the mean logarithm. If runs of only one of the two variants missed
    the target, the ratios are bounds: lower bounds if the variant missed the target, upper bounds
    if the first variant missed it. If runs of both missed it, the result is unknown.

    Args:
        low_tail: see `mean_of`.
    """
    if not times or any(each.time_s <= 0 for each in (*times, *first)):
        return NOTHING
    late = any(not each.reached for each in times)
    first_late = any(not each.reached for each in first)
    if late and first_late:
        return NOTHING
    pairs = zip(times, first, strict=True)
    logs = mean_of([math.log(one.time_s / other.time_s) for one, other in pairs], low_tail)
    assert logs.mean is not None
    return Estimate(
        math.exp(logs.mean),
        None if logs.low is None or first_late else math.exp(logs.low),
        None if logs.high is None or late else math.exp(logs.high),
    )


def difference_of(values: Sequence[float], first: Sequence[float]) -> Estimate:
    """Return the mean of value - value of the first variant, over pairs of equal seeds."""
    return mean_of([one - other for one, other in zip(values, first, strict=True)])


def quantile(tail: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with probability `tail`."""
    from scipy.stats import t  # imported here, because it takes half a second

    return float(t.isf(tail, freedom))
