"""Finds units (workers, servers or links) that are slower than the others.

The units are compared row by row: a row has the times of all units in one iteration, so that a
cause that slows all units at once, such as a harder batch, cancels.

**The test.** Let x_1, ..., x_N be the logarithms of the times of a row, in standard deviations from
their median, limited to ±3 so that a pause of one unit does not hide another. If unit w is like the
others (the times of a row are exchangeable, whatever their law), then each of these times was
equally likely to be the time of w, and for every number l

    L = exp(l x_w) / mean_v exp(l x_v)

has mean 1. So the product of L over the rows from s on is a martingale, and a mixture of such
products over l and s is a martingale as well. With weights p_s whose sum is 1,

    E_t = (E_(t-1) + p_t) L_t,      averaged over l = 0.5, 1, 2.

By Ville's inequality it reaches N / a at any row with a chance of at most a / N, so any of N equal
units reaches it with a chance of at most a = FAMILY_ERROR. This is a test by betting (Shafer,
Testing by betting, JRSS A 184, 2021); L is the likelihood ratio for normal noise with standard
deviation 1, in which w is slower by l, given the set of times; the mixture over s is an e-detector
(Shin, Ramdas and Rinaldo, E-detectors, NEJSDS 2, 2024). Half of the weight is on the first row.

**The period.** The unit with the most evidence is named first. Let r_t be the logarithm of its time
divided by the median of the others, and d the logarithm of its factor. The rows a to b with the
largest

    sum over t = a .. b of d (r_t - d / 2)

are the slow period, the estimate of a change by maximum likelihood (Hinkley, Inference about the
change-point in a sequence of random variables, Biometrika 57, 1970, here for both ends). Then d is
estimated again from these rows, and so on until the rows do not change. Then these times are left
out, and the test is repeated. So slow units do not hide each other, and each burst becomes a
separate period.

The test has limits. A row gives at most log N of evidence about a unit, so a pause of one or two
rows is not named. If there are two units, the test names the slower one, although the other may be
unusually fast. If half of the units or more are slow, they count as usual (see `fast_units`). Times
that depend on earlier times, for example through the heat of a machine, are not noise: such slow
periods are named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Pattern: TypeAlias = Literal["steady", "bursts", "once"]

FAMILY_ERROR: Final = 0.01  # chance that any of equal units has a slow period
LEAST_FACTOR: Final = 1.1  # a unit that takes less than this multiple of the others is not named
_LIMIT: Final = 3.0  # standard deviations
_LEAST_DEVIATION: Final = 0.005  # least standard deviation of the logarithms
_LEVELS: Final = (0.5, 1.0, 2.0)  # l
_FEWEST_STARTS: Final = 100  # least number of rows over which the weight of later starts is spread
_STARTS: Final = (1.02, 1.1, 1.5, 3.0)  # factors with which the search for a period begins
_MOST_TIMES: Final = 20  # number of times that rows and factor of a period are estimated in turn
_ONE_BREAK: Final = 5  # number of rows below which a break between two periods does not count


@dataclass(frozen=True, slots=True)
class SlowPeriod:
    """Consecutive rows in which a unit was slow, compared with the others.

    Args:
        unit: Number of the worker or link.
        first: First slow row.
        last: Last slow row; None: the period lasts until the end.
        named: Row after which the test named the unit.
        factor: Time as a multiple of the other units' time.
    """

    unit: int
    first: int
    last: int | None
    named: int
    factor: float

    @property
    def rows(self) -> slice:
        return slice(self.first, None if self.last is None else self.last + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Slow:
    """The slow periods in a table of times, by unit and begin.

    Args:
        excess: Seconds that each unit needed longer than the others, shape (T, N).
    """

    periods: Sequence[SlowPeriod]
    excess: Floats

    def of(self, unit: int) -> list[SlowPeriod]:
        return [period for period in self.periods if period.unit == unit]

    @property
    def units(self) -> list[int]:
        return sorted({period.unit for period in self.periods})


def slow_units(seconds: Floats, least_factor: float = LEAST_FACTOR) -> Slow:
    """Return the units that are slower than the others, and by how much.

    Args:
        seconds: Times, shape (T, N); NaN, 0 or less if the unit has no time in that row.
        least_factor: A unit that takes less than this multiple of the others is not named.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(seconds > 0, seconds, np.nan))
    periods: list[SlowPeriod] = []
    usual = logs.copy()  # NaN in the slow periods
    if logs.shape[1] > 1:
        while (period := _next_period(usual, math.log(least_factor))) is not None:
            periods.append(period)
            usual[period.rows, period.unit] = np.nan
    return _measured(seconds, _merged(periods))


def fast_units(seconds: Floats) -> tuple[tuple[int, ...], float] | None:
    """Return the units that are faster than most others, and the factor by which others are slower.

    None if there are no such units; they are fewer than half of all.

    If most units are slow, the median is slow, and the test names nothing. The same test with the
    reciprocals of the times names the fast units.

    Args:
        seconds: Times, shape (T, N); NaN if a unit has no time.
    """
    units = seconds.shape[1]
    known = seconds[(seconds > 0).sum(axis=1) == units]
    if units < 3:
        return None
    periods = slow_units(1 / known).periods
    found = {each.unit for each in periods if each.last is None and each.first < len(known) / 2}
    if not found or 2 * len(found) >= units:
        return None
    logs = np.log(known)
    mine = np.median(logs[:, sorted(found)], axis=1)
    others = np.median(np.delete(logs, sorted(found), axis=1), axis=1)
    return tuple(sorted(found)), math.exp(_middle_mean(others - mine))


def pattern_of(periods: Sequence[SlowPeriod]) -> Pattern:
    """Return the pattern of the slow periods of a unit, at least one period.

    `steady`: one period, which lasts until the end. `once`: one period, which has ended. `bursts`:
    several periods.
    """
    if len(periods) > 1:
        return "bursts"
    return "steady" if periods[0].last is None else "once"


def _next_period(usual: Floats, least: float) -> SlowPeriod | None:
    """Return the slow period of the unit with the most evidence; None if none has enough.

    Args:
        usual: Logarithms of the times that are in no slow period, shape (T, N); NaN: left out.
        least: Logarithm of the least factor.
    """
    units = usual.shape[1]
    deviation = _deviation(usual - _row_medians(usual)[:, None])
    evidence = _evidence(usual, deviation)
    enough = math.log(units / FAMILY_ERROR)
    for unit in np.argsort(-evidence.max(axis=0, initial=-np.inf)).tolist():
        if not (evidence[:, unit] >= enough).any():
            return None
        named = int((evidence[:, unit] >= enough).argmax())
        residuals = usual[:, unit] - _others(usual, unit)
        fewest = math.ceil(enough / math.log(units))  # a row gives at most log N
        first, end, factor = _slow_rows(residuals, deviation, fewest)
        if factor < least:
            continue
        to_end = enough + 2 * math.log(len(usual))
        after = -_gains(residuals, factor, deviation)[end:].sum()
        last = None if after < to_end else end - 1
        return SlowPeriod(unit, first, last, max(named, first), math.exp(factor))
    return None


def _evidence(usual: Floats, deviation: float) -> Floats:
    """Return the logarithm of E for each row and unit, shape (T, N)."""
    there = ~np.isnan(usual)
    count = there.sum(axis=1, keepdims=True)
    scores = np.clip((usual - _row_medians(usual)[:, None]) / deviation, -_LIMIT, _LIMIT)
    rows = len(usual)
    weights = np.full((rows, 1), math.log(0.5 / max(rows - 1, _FEWEST_STARTS)))
    weights[:1] = math.log(0.5)
    found = np.full(usual.shape, -np.inf)
    for level in _LEVELS:
        heights = np.where(there, level * scores, 0.0)
        mean = np.where(there, np.exp(heights), 0.0).sum(axis=1, keepdims=True)
        ratios = np.where(there, heights - np.log(np.maximum(mean, 1e-9) / np.maximum(count, 1)), 0)
        sums = ratios.cumsum(axis=0)
        started = np.logaddexp.accumulate(weights - (sums - ratios), axis=0)
        np.logaddexp(found, sums + started - math.log(len(_LEVELS)), out=found)
    return found


def _slow_rows(residuals: Floats, deviation: float, fewest: int) -> tuple[int, int, float]:
    """Return the first row of a slow period, the row after the last, and its log factor.

    All are 0 if no period has at least `fewest` rows.
    """
    best, found = 0.0, (0, 0, 0.0)
    for start in _STARTS:
        factor, rows = math.log(start), (0, 0)
        for _ in range(_MOST_TIMES):
            sums = np.concatenate([[0.0], np.cumsum(_gains(residuals, factor, deviation))])
            end = int((sums - np.minimum.accumulate(sums)).argmax())
            first = int(sums[: end + 1].argmin())
            if (first, end) == rows or first == end:
                break
            rows = first, end
            factor = _middle_mean(residuals[first:end])
        gain = float(sums[end] - sums[first])
        if end - first >= fewest and gain > best:
            best, found = gain, (first, end, factor)
    return found


def _gains(residuals: Floats, factor: float, deviation: float) -> Floats:
    """Return the logarithm of the likelihood ratio of each row; 0 for a row without a time.

    It is limited, so that a single unusual time neither begins nor ends a period.
    """
    limit = max(factor / 2, _LIMIT * deviation)
    above = np.clip(np.nan_to_num(residuals - factor / 2), -limit, limit)
    return np.asarray(factor * above / deviation**2)


def _merged(periods: Sequence[SlowPeriod]) -> list[SlowPeriod]:
    """Return the periods by unit and begin; adjacent periods of a unit are joined."""
    found: list[SlowPeriod] = []
    for period in sorted(periods, key=lambda each: (each.unit, each.first)):
        before = found[-1] if found else None
        if before is None or before.unit != period.unit or _apart(before, period):
            found.append(period)
        elif before.last is not None:
            last = None if period.last is None else max(before.last, period.last)
            found[-1] = replace(before, last=last, named=min(before.named, period.named))
    return found


def _apart(before: SlowPeriod, after: SlowPeriod) -> bool:
    return before.last is not None and after.first > before.last + _ONE_BREAK


def _measured(seconds: Floats, periods: Sequence[SlowPeriod]) -> Slow:
    """Return the periods with factors from all their rows, and the excess of each unit."""
    times = np.where(seconds > 0, seconds, np.nan)
    usual, excess = times.copy(), np.zeros(seconds.shape)
    for period in periods:
        usual[period.rows, period.unit] = np.nan
    reference = np.exp(_row_medians(np.log(usual)))
    measured = []
    for period in periods:
        mine, others = times[period.rows, period.unit], reference[period.rows]
        ratios = (mine / others)[~np.isnan(mine / others)]
        factor = math.exp(_middle_mean(np.log(ratios))) if len(ratios) else period.factor
        more = np.nan_to_num(mine) * (1 - 1 / max(factor, 1.0))
        excess[period.rows, period.unit] = more
        measured.append(replace(period, factor=factor))
    return Slow(measured, excess)


def _row_medians(values: Floats) -> Floats:
    """Return the median of each row without NaN, shape (T,); NaN if all are."""
    ordered = np.sort(values, axis=1)  # NaN last
    count = (~np.isnan(ordered)).sum(axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum((count - 1) // 2, 0)]
    return np.asarray((low + ordered[rows, np.minimum(count // 2, values.shape[1] - 1)]) / 2)


def _others(usual: Floats, unit: int) -> Floats:
    """Return the median time of the other units, shape (T,); the larger time if there are two."""
    others = np.delete(usual, unit, axis=1)
    two = (~np.isnan(others)).sum(axis=1) == 2
    return np.where(two, np.fmax.reduce(others, axis=1), _row_medians(others))


def _middle_mean(values: Floats) -> float:
    """Return the mean of the middle half of the values; 0 if there is none."""
    ordered = np.sort(values[~np.isnan(values)])
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean()) if len(ordered) else 0.0


def _deviation(residuals: Floats) -> float:
    """Return the standard deviation of the noise, from the differences between two rows.

    The median of a normal number's absolute value is 0.6745, and a difference has the standard
    deviation √2. Lasting differences between units do not count.
    """
    steps = np.abs(np.diff(residuals, axis=0))
    steps = steps[~np.isnan(steps)]
    found = float(np.median(steps)) / (0.6745 * math.sqrt(2)) if len(steps) else 0.0
    return max(found, _LEAST_DEVIATION)
