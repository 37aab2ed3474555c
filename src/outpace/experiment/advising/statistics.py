"""Statistics over fresh seeds: speed-ups, and which strategy they speak for.

Finalists and BSP are run on the same seeds, which had no part in the search. A speed-up is the
geometric mean over these pairs of the time of BSP over the time of the other; its logarithm is
taken to be normal over seeds.

The strategy that is recommended is the best of k, so an interval for one strategy that was named
beforehand would flatter it. Its lower end is simultaneous over the k: Student's t with error
probability 2.5 % / k (Bonferroni), so the chance that any of the k lower ends exceeds its true
value is at most 2.5 %, whichever is then chosen. The upper end needs no such correction: the
estimate of the best is at least that of the truly best strategy, whose true value is the largest,
so it is too low only if that one's is. decision 14 has the argument, and simulations.

The error of the calibration is the same for all seeds, so it does not shrink with their number: its
variance is added to that of the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.support.estimates import Estimate, TimeTo, ratio_of

_TAIL: Final = 0.025
MIN_GAIN: Final = 0.05  # a smaller gain is not worth a change, unless the user says otherwise


def speedup(
    times: Sequence[TimeTo],
    reference: Sequence[TimeTo],
    family: int = 1,
    error: float | None = None,
) -> Estimate:
    """Return by what factor a strategy is sooner than a reference, over pairs of equal seeds.

    A pair in which only the reference missed the target has a lower bound of the factor, and the
    interval then has no upper end. A pair in which the strategy missed it has at most an upper
    bound, so there is no lower end. Where runs of both missed it nothing is known.

    With s the standard deviation of the logarithm over n pairs and e the error of the prediction,
    the ends are exp(m ± √(t² s² / n + z² e²)), Student's t with n - 1 degrees of freedom and z of
    the normal law.

    Args:
        family: number of strategies from which this one may be chosen; the lower end holds for
            all of them at once.
        error: relative standard error of the predicted factor, by the calibration; None: unknown,
            and not contained in the interval.
    """
    return ratio_of(reference, times, low_tail=_TAIL / family, error=error or 0.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy that the fresh seeds speak for.

    Attributes:
        name: of the strategy: the reference unless another one is reliably sooner, and by enough.
        best: the strategy with the shortest time, reliably sooner or not.
        speedups: of every strategy over the reference, with simultaneous lower ends.
    """

    name: str
    best: str
    speedups: Mapping[str, Estimate]


def chosen(
    times: Mapping[str, Sequence[TimeTo]],
    reference: str,
    error: float | None = None,
    min_gain: float = 0.0,
) -> Choice:
    """Return the best strategy that is reliably sooner than the reference, or the reference.

    Args:
        times: of each strategy on the same seeds.
        error: of predicted factors; see `speedup`.
        min_gain: the estimated factor must be at least 1 + this, since a significant gain may be
            too small to be worth a change.
    """
    family = max(1, len(times) - 1)
    found = {name: speedup(own, times[reference], family, error) for name, own in times.items()}
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
