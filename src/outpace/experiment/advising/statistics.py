"""Statistics over fresh seeds: speed-ups, and the probability of being best.

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

import numpy as np
import numpy.typing as npt

from outpace.support.estimates import Estimate, TimeTo, ratio_of

_TAIL: Final = 0.025
_DRAWS: Final = 20_000
MIN_GAIN: Final = 0.05  # a smaller gain is not worth a change, unless the user says otherwise
_Array = npt.NDArray[np.float64]


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
        speedup: of that strategy over the reference; 1 for the reference itself.
        distinguishable: whether the interval excludes 1.
        best: the strategy with the shortest time, reliably sooner or not.
        speedups: of every other strategy over the reference, with simultaneous lower ends.
    """

    name: str
    speedup: Estimate
    distinguishable: bool
    best: str
    speedups: dict[str, Estimate]


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
    others = [name for name in times if name != reference]
    found = {name: speedup(times[name], times[reference], len(others), error) for name in others}

    def factor(name: str) -> float:
        estimate = found[name]
        return -math.inf if estimate.mean is None else estimate.mean

    usable = [n for n in others if all(each.reached for each in times[n])]
    best = max(usable, key=factor, default=reference)
    if best != reference and factor(best) <= 1:
        best = reference
    reliable = [
        n
        for n in usable
        if (low := found[n].low) is not None and low > 1 and factor(n) >= 1 + min_gain
    ]
    name = max(reliable, key=factor, default=reference)
    if name == reference:
        return Choice(reference, Estimate(1.0, 1.0, 1.0), False, best, found)
    return Choice(name, found[name], True, best, found)


def probability_of_best(
    times: Mapping[str, Sequence[TimeTo]], seed: int = 0
) -> dict[str, float | None]:
    """Return for each strategy the probability that its mean logarithm of the time is the lowest.

    Of draws from a multivariate t law with the means and the covariance of the pairs and n - 1
    degrees of freedom. Between two strategies this is the level of the paired t test. A strategy
    that missed the target on some seed has probability 0 beside those that did not.

    Returns:
        None for all with fewer than two seeds, and if all strategies missed the target.
    """
    whole = [name for name, each in times.items() if each and all(t.reached for t in each)]
    n = len(times[whole[0]]) if whole else 0
    if n < 2:
        return dict.fromkeys(times)
    logs = np.log([[each.time_s for each in times[name]] for name in whole]).T
    means: _Array = logs.mean(axis=0)
    spread = (logs - means) / math.sqrt(n - 1)
    random = np.random.default_rng(seed)
    normal = random.standard_normal((_DRAWS, n)) @ spread / math.sqrt(n)
    scale = np.sqrt(random.chisquare(n - 1, _DRAWS) / (n - 1))
    best = np.argmin(means + normal / scale[:, None], axis=1)
    shares = np.bincount(best, minlength=len(whole)) / _DRAWS
    found = dict(zip(whole, shares.tolist(), strict=True))
    return {name: found.get(name, 0.0) for name in times}
