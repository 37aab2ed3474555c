"""Slow units of a table of times, with their factors and what they needed longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.predict.slow import FAMILY_ERROR, detected, pattern_of
from outpace.predict.slow.period import SlowPeriod
from outpace.report.explaining.charging import Floats
from outpace.report.explaining.explanation import Cause, Kind, Period
from outpace.report.explaining.tables import Tables

_SHORT: Final = 5  # iterations: in shorter periods each is compared with the others alone


@dataclass(frozen=True, slots=True, eq=False)
class Slow:
    """The slow periods of some units, with the factor of each, and their excess (s), (T, N)."""

    periods: Sequence[SlowPeriod]
    excess: Floats

    def of(self, unit: int) -> list[SlowPeriod]:
        return [period for period in self.periods if period.unit == unit]

    @property
    def units(self) -> list[int]:
        return sorted({period.unit for period in self.periods})


def nothing_slow(seconds: Floats) -> Slow:
    return Slow([], np.zeros_like(seconds))


def slow_in(seconds: Floats, least_factor: float, error: float = FAMILY_ERROR) -> Slow:
    """Return the slow periods in a table (T, N), their factors estimated from all their rows."""
    known = np.flatnonzero((~np.isnan(seconds)).sum(axis=1) > 1)
    periods = detected(seconds[known], least_factor, error)
    slow = np.zeros(seconds.shape, np.bool_)
    for period in periods:  # from places in the known rows to iterations
        last = None if period.last is None else int(known[period.last])
        period.first, period.named = int(known[period.first]), int(known[period.named])
        period.last = last
        slow[period.first : None if last is None else last + 1, period.unit] = True
    excess = np.zeros(seconds.shape)
    if not periods:
        return Slow([], excess)
    others = np.where(slow | ~(seconds > 0), np.nan, seconds)
    usual = np.full(len(seconds), np.nan)
    some = ~np.isnan(others).all(axis=1)
    usual[some] = np.nanmedian(others[some], axis=1)
    for period in periods:
        rows = slice(period.first, None if period.last is None else period.last + 1)
        times, reference = seconds[rows, period.unit], usual[rows]
        ratios = (times / reference)[(times > 0) & ~np.isnan(reference)]
        if not len(ratios):
            continue
        if len(ratios) < _SHORT:
            period.factor = float(np.median(ratios))
            more = times - reference
        else:
            period.factor = float(np.exp(_middle(np.log(ratios))))
            more = times * (1 - 1 / max(period.factor, 1.0))
        excess[rows, period.unit] = np.maximum(np.nan_to_num(more), 0.0)
    return Slow(periods, excess)


def _middle(values: Floats) -> float:
    """Return the mean of the middle half."""
    ordered, cut = np.sort(values), len(values) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def _span(
    begins: Floats, ends: Floats, first: int, last: int, time_s: float
) -> tuple[float, float]:
    """Return when these iterations began and ended, in s.

    The iteration in which a run was resumed from a checkpoint has no times, although its messages
    have. Then it is the time between those before and after.
    """

    def known(times: Floats) -> Floats:
        return np.asarray(times[~np.isnan(times)])

    began, ended = known(begins[first : last + 1]), known(ends[first : last + 1])
    start = began.min() if len(began) else known(ends[:first]).max(initial=0.0)
    end = ended.max() if len(ended) else known(begins[last + 1 :]).min(initial=time_s)
    return float(start), float(end)


def cause_of(
    tables: Tables,
    kind: Kind,
    worker: int | None,
    server: int | None,
    periods: Sequence[SlowPeriod],
    lost_s: float,
) -> Cause:
    column = slice(None) if worker is None else worker
    begins, ends = tables.started[:, column], tables.ended[:, column]
    last_row = len(begins) - 1
    shown, lengths = [], []
    for period in periods:
        last = last_row if period.last is None else period.last
        start, end = _span(begins, ends, period.first, last, tables.time_s)
        shown.append(Period(period.first, period.last, start, end, period.factor))
        lengths.append(last + 1 - period.first)
    factor = float(np.average([period.factor for period in shown], weights=lengths))
    named = min(period.named for period in periods)
    return Cause(
        kind,
        worker,
        server,
        pattern_of(periods),
        factor,
        lost_s,
        lost_s / tables.time_s,
        named,
        tuple(shown),
    )
