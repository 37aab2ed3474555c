"""A test for single run times that are too long to belong to the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outpace.predict.slow.medians import median, median_of_others, row_medians
from outpace.predict.slow.period import SlowPeriod

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST_PAUSE: Final = 2.0  # times as long as the others, below which a run time is no pause
_MARGIN: Final = 1.5  # standard errors that are added to an estimated shape
_TAIL: Final = 0.1  # share of the run times that the tail is estimated from
_FEWEST: Final = 8  # run times in the tail,
_LARGEST_TAIL: Final = 0.25  # unless they are more than this share
_MOST: Final = 4096  # run times that the tail is estimated from
_ERROR: Final = 1.15  # of an estimated shape near 0, times the root of the number of run times
_LEAST_SHAPE: Final = -0.2
_JUDGED: Final = 32  # run times that are judged again
_TOGETHER: Final = 16  # times of a group that are judged together
_OFTEN: Final = 16  # rows, after which it is estimated anew in the beginning,
_EVERY: Final = 64  # and later


class Kept(NamedTuple):
    """The last rows, and what is known of them.

    Args:
        logs: Logarithms of the run times of each row, shape (N,).
        usual: Units that are not named at present, shape (N,).
        periods: Slow periods and pauses so far.
    """

    iterations: Sequence[int]
    logs: Sequence[Floats]
    usual: Mask
    periods: Sequence[SlowPeriod]


class Tail:
    """The upper tail of the logarithms of run times, relative to the others of their iteration.

    Beyond a quantile q, of 90 % where there are enough, their excess x is taken to follow a
    generalized Pareto law with the scale s and the shape c (Pickands, Statistical inference using
    extreme order statistics, Annals of Statistics 3, 1975):

        chance = share (1 + c x / s)^(-1/c),      for c = 0: share exp(-x / s)

    With c = 0 run times have a Pareto tail, which is heavier than those of log-normal, gamma and
    shifted exponential run times; with c > 0 their logarithms have one, as those of Student's t. c
    and s are estimated from the k largest times by probability-weighted moments (Hosking and
    Wallis, Parameter and quantile estimation for the generalized Pareto distribution, Technometrics
    29, 1987). c is an estimate, so 1.5 of its standard errors are added, and 1/k, which for c = 0
    accounts for the error of s.
    """

    def __init__(self) -> None:
        self._quantile = self._scale = self._shape = self._share = 0.0

    @property
    def is_known(self) -> bool:
        return self._share > 0

    def learn(self, residuals: Floats) -> None:
        """Estimate the tail from residuals of any shape; NaN is left out."""
        values = residuals[~np.isnan(residuals)]
        values = values[:: max(1, len(values) // _MOST)]
        count = max(int(_TAIL * len(values)), _FEWEST)
        if count > _LARGEST_TAIL * len(values):
            return
        top = np.sort(np.partition(values, len(values) - count - 1)[len(values) - count - 1 :])
        excess = top[1:] - top[0]
        mean = max(float(excess.mean()), 1e-6)
        above = 1 - (np.arange(count) + 0.65) / count
        half = max(mean - 2 * float((above * excess).mean()), 1e-9)  # of the mean where c = 0
        shape = max(2 - mean / half, _LEAST_SHAPE) + _MARGIN * _ERROR / math.sqrt(count)
        self._share, self._quantile = count / len(values), float(top[0])
        self._scale, self._shape = mean, max(shape, 0.0) + 1 / count

    def chance(self, residual: float) -> float:
        """Return the chance that a run time is at least as long; 1 while the tail is unknown."""
        excess = residual - self._quantile
        if not self.is_known or excess <= 0:
            return 1.0
        return self._share * math.exp(-math.log1p(self._shape * excess / self._scale) / self._shape)


class Pauses:
    """Names single run times that are too long.

    n run times of a unit in consecutive rows, of which the last is t, are named if the n-th power
    of the chance of the shortest is at most a / (N t (t + 1) 2^n), so that in a run of any length
    any of N equal units is named with a chance of at most a. Whenever the tail is estimated anew,
    the longest run times of the rows before are judged again, each by a tail that is estimated
    without it and without longer ones: pauses make the tail heavier.

    Args:
        units: Number of units, N.
        error: The chance a.
    """

    def __init__(self, units: int, error: float) -> None:
        self._units, self._error = units, error
        self._tail = Tail()

    def step(self, kept: Kept, compared: Mask, row: int) -> list[SlowPeriod]:
        """Return the pauses that are known after the last row, whose number is `row`, from 1.

        Args:
            compared: Units that are compared with each other, at least two.
        """
        if row % (_OFTEN if row < 4 * _EVERY else _EVERY) == 0 or row == _OFTEN // 2:
            return self._judge_anew(kept, row)
        return self._in_row(kept, compared, row) if self._tail.is_known else []

    def _in_row(self, kept: Kept, compared: Mask, row: int) -> list[SlowPeriod]:
        found: list[SlowPeriod] = []
        logs, count, least = kept.logs[-1], int(compared.sum()), math.log(LEAST_PAUSE)
        if count < 2:
            return []
        long = np.where(compared, logs, -np.inf) - median(logs[compared])
        for unit in np.flatnonzero(long > (least / 2 if count == 2 else least)).tolist():
            residual = _residual(logs, compared, unit)
            if residual > least and self._is_too_long(self._tail, residual, row):
                found.append(_pause(kept, -1, unit, residual))
        return found

    def _judge_anew(self, kept: Kept, row: int) -> list[SlowPeriod]:
        """Estimate the tail, and return the pauses among the longest run times of the kept rows."""
        iterations, logs = np.array(kept.iterations), np.array(kept.logs)
        for period in kept.periods:
            if period.last is None or period.last >= iterations[0]:
                last = iterations[-1] if period.last is None else period.last
                logs[(period.first <= iterations) & (iterations <= last), period.unit] = np.nan
        some = (~np.isnan(logs)).sum(axis=1) > 1
        if not some.any():
            return []
        residuals = np.where(some[:, None], logs - row_medians(logs)[:, None], np.nan)
        if kept.usual.sum() == 2:  # the middle of two units has half of their difference
            residuals *= 2
        flat = np.where(np.isnan(residuals), -np.inf, residuals).ravel()
        longest = np.argpartition(flat, -min(_JUDGED, len(flat)))[-_JUDGED:]
        longest = longest[flat[longest] > math.log(LEAST_PAUSE)]
        left_out = residuals.copy()
        named: list[tuple[int, int]] = []
        seen: list[tuple[int, int]] = []
        for run in _runs(longest, residuals):
            least = min(_residual(logs[place], ~np.isnan(logs[place]), unit) for place, unit in run)
            seen += run
            left_out[tuple(np.transpose(run))] = np.nan
            tail = Tail()
            tail.learn(left_out)
            last = row - len(logs) + 1 + run[-1][0]
            if self._is_too_long(tail, least, last, len(run)):
                named = list(seen)
        for place, unit in named:
            residuals[place, unit] = np.nan
        self._tail.learn(residuals)
        return [
            _pause(kept, place, unit, _residual(logs[place], ~np.isnan(logs[place]), unit))
            for place, unit in named
        ]

    def _is_too_long(self, tail: Tail, residual: float, row: int, count: int = 1) -> bool:
        """Return whether so many run times in a row, which end at a row, are all too long."""
        allowed = self._error / self._units / (row * (row + 1)) / 2**count
        return bool(tail.chance(residual) ** count <= allowed)


def _runs(longest: NDArray[np.int64], residuals: Floats) -> list[list[tuple[int, int]]]:
    """Return the places of long run times, those of a unit in consecutive rows together.

    Those with the longest come first.
    """
    places, units = np.unravel_index(np.sort(longest), residuals.shape)
    found: dict[int, list[list[tuple[int, int]]]] = {}
    for place, unit in zip(places.tolist(), units.tolist(), strict=True):
        runs = found.setdefault(unit, [])
        if runs and runs[-1][-1][0] == place - 1:
            runs[-1].append((place, unit))
        else:
            runs.append([(place, unit)])
    every = [run for runs in found.values() for run in runs]
    return sorted(every, key=lambda run: -max(float(residuals[at]) for at in run))


def _residual(logs: Floats, there: Mask, unit: int) -> float:
    """Return a unit's difference to the median of the others."""
    others = there.copy()
    others[unit] = False
    return float(logs[unit] - median_of_others(logs[None, others])[0])


def _pause(kept: Kept, place: int, unit: int, residual: float) -> SlowPeriod:
    iteration, now = kept.iterations[place], kept.iterations[-1]
    return SlowPeriod(unit, iteration, iteration, now, math.exp(residual))


def sudden(
    seconds: Floats, groups: NDArray[np.int64], candidates: Sequence[int], error: float
) -> list[int]:
    """Return the groups with times that are too long to belong to the others.

    The chance that some j of the n times of a group are all that long is at most n! / (j! (n - j)!)
    times the chance of one of them to the power of j. The least of these counts, n times. Groups
    that may be too long are left out together, so that they do not hide each other (Rosner,
    Percentage points for a generalized ESD many-outlier procedure, Technometrics 25, 1983).

    Args:
        seconds: Positive times, shape (K,), of which at least half are usual.
        groups: The group of each time, shape (K,).
        candidates: Groups that may be named, that with the longest time first.
        error: The chance that any is named, if the times have one law.
    """
    if not len(seconds):
        return []
    residuals = np.log(seconds) - math.log(float(np.median(seconds)))
    different, found = np.unique(groups), 0
    for count, group in enumerate(candidates, 1):
        mine = groups == group
        if not mine.any():
            break
        times = np.sort(residuals[mine])[::-1].tolist()
        residuals[mine] = np.nan
        if times[0] <= math.log(LEAST_PAUSE):
            break
        tail = Tail()
        tail.learn(residuals)
        chances = [
            math.comb(len(times), place) * tail.chance(time) ** place
            for place, time in enumerate(times[:_TOGETHER], 1)
        ]
        if len(times) * min(chances) <= error / len(different):
            found = count
    return list(candidates[:found])
