"""A test for single run times that are too long to belong to the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outpace.predict.slow.medians import median, median_of_others
from outpace.predict.slow.period import SlowPeriod

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST_PAUSE: Final = 2.0  # times as long as the others, below which a run time is no pause
_TAIL: Final = 0.1  # share of the run times that the tail is estimated from
_FEWEST: Final = 8  # run times in the tail,
_LARGEST_TAIL: Final = 0.25  # unless they are more than this share
_MOST: Final = 4096  # run times that the tail is estimated from
_EVERY: Final = 64  # rows, after which the tail is estimated anew


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

    Beyond a quantile q, of 90 % where there are enough, their excess is taken to be exponential, so
    run times have a Pareto tail (Hill, A simple general approach to inference about the tail of a
    distribution, Annals of Statistics 3, 1975; Weissman, Estimation of parameters and large
    quantiles based on the k largest observations, JASA 73, 1978). The tails of log-normal, gamma
    and shifted exponential run times are lighter than that, so the test is conservative for them.
    The mean excess b of k times is an estimate: the chance that one more excess is above x is
    (1 + x / (k b))^-k.
    """

    def __init__(self) -> None:
        self._quantile = self._mean = self._share = 0.0
        self._count = 0

    @property
    def is_known(self) -> bool:
        return self._count > 0

    def learn(self, residuals: Floats) -> None:
        """Estimate the tail from residuals of any shape; NaN is left out."""
        values = residuals[~np.isnan(residuals)]
        values = values[:: max(1, len(values) // _MOST)]
        count = max(int(_TAIL * len(values)), _FEWEST)
        if count > _LARGEST_TAIL * len(values):
            return
        self._share = count / len(values)
        top = np.partition(values, len(values) - count - 1)[len(values) - count - 1 :]
        self._quantile, self._count = float(top[0]), count
        self._mean = max(float(top[1:].mean()) - self._quantile, 1e-6)

    def chance(self, residual: float) -> float:
        """Return the chance that a run time is at least as long; 1 while the tail is unknown."""
        excess = residual - self._quantile
        if not self._count or excess <= 0:
            return 1.0
        return self._share * math.exp(
            -self._count * math.log1p(excess / (self._count * self._mean))
        )


class Pauses:
    """Names single run times that are too long.

    A run time of row t is named if its chance is at most a / (N t (t + 1)), so that in a run of any
    length any of N equal units is named with a chance of at most a.

    Args:
        units: Number of units, N.
        error: The chance a.
    """

    def __init__(self, units: int, error: float) -> None:
        self._units, self._error = units, error
        self._tail = Tail()

    def step(self, kept: Kept, compared: Mask, row: int) -> list[SlowPeriod]:
        """Return the pauses in the last row, whose number is `row`, from 1.

        Once the tail is known, also those in the rows before.

        Args:
            compared: Units that are compared with each other, at least two.
        """
        if row % _EVERY == 0 or (4 < row < _EVERY and row & (row - 1) == 0):
            was_known = self._tail.is_known
            self._learn(kept)
            if self._tail.is_known and not was_known:
                found = []
                for number, logs in enumerate(kept.logs, row - len(kept.logs) + 1):
                    there = kept.usual & ~np.isnan(logs)
                    found += self._in_row(kept, number - row - 1, there, number)
                return found
        return self._in_row(kept, -1, compared, row) if self._tail.is_known else []

    def _in_row(self, kept: Kept, place: int, compared: Mask, row: int) -> list[SlowPeriod]:
        found: list[SlowPeriod] = []
        logs, count, least = kept.logs[place], int(compared.sum()), math.log(LEAST_PAUSE)
        if count < 2:
            return []
        long = np.where(compared, logs, -np.inf) - median(logs[compared])
        allowed = self._error / self._units / (row * (row + 1))
        for unit in np.flatnonzero(long > (least / 2 if count == 2 else least)).tolist():
            others = compared.copy()
            others[unit] = False
            residual = float(logs[unit] - median_of_others(logs[None, others])[0])
            if residual > least and self._tail.chance(residual) <= allowed:
                iteration, now = kept.iterations[place], kept.iterations[-1]
                found.append(SlowPeriod(unit, iteration, iteration, now, math.exp(residual)))
        return found

    def _learn(self, kept: Kept) -> None:
        """Estimate the tail without slow periods and pauses."""
        logs, iterations = np.array(kept.logs), np.array(kept.iterations)
        for period in kept.periods:
            if period.last is None or period.last >= iterations[0]:
                last = iterations[-1] if period.last is None else period.last
                logs[(period.first <= iterations) & (iterations <= last), period.unit] = np.nan
        logs = logs[~np.isnan(logs).all(axis=1)]
        if not len(logs):
            return
        residuals = logs - np.nanmedian(logs, axis=1, keepdims=True)
        # The middle of two units has half of their difference.
        self._tail.learn(2 * residuals if kept.usual.sum() == 2 else residuals)
