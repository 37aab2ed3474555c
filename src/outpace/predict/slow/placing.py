"""Begins, ends and factors of slow periods, estimated again when all run times are known.

While a run is under way, a period is named as soon as there is enough evidence, often by a few rows
and with a factor between normal and slow. Then its begin is too early: with a factor of 1.26, rows
of a unit that is 3 times slower later on look as likely slow as normal.

Let x_t be the logarithm of a unit's run time divided by the median of the others', which are not
slow in row t, and d the logarithm of the period's factor. For normal noise the logarithm of the
likelihood ratio of rows a to b being slow is proportional to

    sum over t = a .. b of d (x_t - d / 2)

The rows with the largest sum are the period (the estimate of a change by maximum likelihood;
Hinkley, Inference about the change-point in a sequence of random variables, Biometrika 57, 1970,
here for both ends). d is estimated from them again, until the rows stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.slow.evidence import LEAST_DEVIATION, LIMIT
from outpace.predict.slow.medians import deviation_of, median_of_others, middle_mean
from outpace.predict.slow.period import SlowPeriod, merged

Floats = NDArray[np.float64]

_MOST_TIMES: Final = 20  # that the rows and the factor are estimated in turn


def placed_again(
    seconds: Floats, periods: Sequence[SlowPeriod], least: float, error: float
) -> list[SlowPeriod]:
    """Return the periods with begin, end and factor as all rows say, by unit and begin.

    Between a period and the one before or after it, rows may be added. Where one period has several
    bursts in it, each with as much evidence as a period needs to end, they are told apart. A period
    of one row, a pause, and one whose factor would be too small stay as they are.

    Args:
        seconds: Shape (T, N); NaN where a unit has no run time.
        periods: By unit and begin.
        least: Logarithm of the factor below which a unit is not slow.
        error: Chance that any of N equal units is named.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(seconds > 0, seconds, np.nan))
    usual = logs.copy()
    for period in periods:
        usual[period.first : _end(period, len(logs)), period.unit] = np.nan
    enough = math.log(logs.shape[1] / error) + 2 * math.log(max(len(logs), 1))
    found: list[SlowPeriod] = []
    for place, period in enumerate(periods):
        if period.last == period.first:
            found.append(period)
            continue
        around = [periods[k] for k in (place - 1, place + 1) if 0 <= k < len(periods)]
        mine = [each for each in around if each.unit == period.unit]
        low = max((_end(each, len(logs)) for each in mine if each.first < period.first), default=0)
        high = min((each.first for each in mine if each.first > period.first), default=len(logs))
        others = np.delete(usual[low:high], period.unit, axis=1)
        found += _bursts(
            period, logs[low:high, period.unit] - median_of_others(others), low, least, enough
        )
    return merged(found)


def _end(period: SlowPeriod, rows: int) -> int:
    """Return the row after the last one of a period."""
    return rows if period.last is None else period.last + 1


def _bursts(
    period: SlowPeriod, residuals: Floats, first: int, least: float, enough: float
) -> list[SlowPeriod]:
    """Return the bursts among rows that begin with `first`; the period itself if there is none."""
    steps = np.abs(np.diff(residuals[~np.isnan(residuals)]))
    deviation = max(deviation_of(steps) if len(steps) else 0.0, LEAST_DEVIATION)
    found: list[SlowPeriod] = []
    pieces = [(0, len(residuals))]
    while pieces:
        low, high = pieces.pop()
        factor = math.log(period.factor)
        begin, end = low, low
        for _ in range(_MOST_TIMES):
            gains = _gains(residuals[low:high], factor, deviation)
            before, (begin, end) = (begin, end), _largest(gains, low)
            if (begin, end) == before or begin == end:
                break
            factor = middle_mean(residuals[begin:end])
        gains = _gains(residuals, factor, deviation)
        if begin == end or factor < least or (found and gains[begin:end].sum() < enough):
            continue
        lasts = period.last is None and high == len(residuals) and -gains[end:].sum() < enough
        last = None if lasts else first + end - 1
        found.append(SlowPeriod(period.unit, first + begin, last, period.named, math.exp(factor)))
        pieces += [(low, begin), (end, high)]
    return found or [period]


def _gains(residuals: Floats, factor: float, deviation: float) -> Floats:
    """Return the logarithm of the likelihood ratio of each row; of one without a time, 0.

    It is limited, so that one odd run time neither begins nor ends a period.
    """
    limit = max(factor / 2, LIMIT * deviation)
    above = np.clip(np.nan_to_num(residuals - factor / 2), -limit, limit)
    return np.asarray(factor * above / deviation**2)


def _largest(gains: Floats, first: int) -> tuple[int, int]:
    """Return the rows with the largest sum: the first one, and the one after the last."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    end = int((sums - np.minimum.accumulate(sums)).argmax())
    return first + int(sums[: end + 1].argmin()), first + end
