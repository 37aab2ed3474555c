"""Compares the workers, servers and links of a recorded run, and charges their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from outpace.predict.slow import FAMILY_ERROR, LEAST_FACTOR, detected, pattern_of
from outpace.predict.slow.period import SlowPeriod
from outpace.report.explaining.charging import Floats, at_the_end, held_because_of, shared
from outpace.report.explaining.explanation import Cause, Explanation, Kind, Period
from outpace.report.explaining.messages import (
    Transits,
    between_workers_and_servers,
    pulls_held,
    served,
)
from outpace.report.explaining.tables import Tables, read_tables

_LEAST_OF_OTHERS: Final = 1.5  # factor of a server or link below which it is not named
_LEAST_SHARE: Final = 0.02  # of the run, that a server or link must cost
_COMMUNICATING: Final = 0.01  # share of a worker's time, from which messages are compared
_SHORT: Final = 5  # iterations: in shorter periods each is compared with the others alone


def explained(folder: str | Path, most: int | None = None) -> Explanation:
    """Return what slows a run, from its folder. Nothing is simulated, so there are no gains.

    Args:
        most: Compare only so many iterations, the first ones. None: all.

    Raises:
        ConfigError: with one line, if the folder is not that of a run, has no times, or has fewer
            than 8 iterations.
    """
    return examined(Path(folder), most).explanation


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """An explanation, and the tables behind it.

    Args:
        excess: Seconds that each worker computed longer than the others, shape (T, N).
    """

    explanation: Explanation
    tables: Tables
    excess: Floats


def examined(folder: Path, most: int | None = None) -> Examined:
    """Return what slows a run, as `explained`."""
    tables = read_tables(folder, most)
    notes = list(tables.notes)
    workers = _slow(tables.seconds, LEAST_FACTOR) if tables.workers > 1 else _none(tables.seconds)
    if tables.workers == 1:
        notes.append("the run has one worker, which cannot be compared with others")
    compared: list[Kind] = ["worker"] if tables.workers > 1 else []
    links, servers, transits = dict[tuple[int, int | None], _Slow](), None, None
    if tables.servers and _communicating(tables) >= _COMMUNICATING:
        transits = between_workers_and_servers(tables)
        if transits is not None and tables.workers > 1:
            compared.append("link")
            links = _slow_links(transits.each)
        times = served(tables) if tables.servers > 1 else None
        if times is not None:
            compared.append("server")
            servers = _slow(times, _LEAST_OF_OTHERS), times
        elif tables.servers > 1:
            notes.append("servers are not compared: only real runs record how long they need")
    elif tables.servers:
        notes.append(
            f"messages took less than {100 * _COMMUNICATING:.0f} % of the time: servers and links "
            "are not compared"
        )
    else:
        notes.append("without servers, links are not compared: an all-reduce uses all at once")
    causes = _of_workers(tables, workers, links, transits if links else None)
    if servers is not None:
        causes += _of_servers(tables, *servers)
    if tables.recorded > len(tables.started):
        notes.append(
            f"the first {len(tables.started):,} of {tables.recorded:,} iterations were compared"
        )
    explanation = Explanation(
        str(folder),
        "wall" if tables.is_real else "virtual",
        tables.time_s,
        tables.strategy,
        tables.workers,
        tables.servers,
        len(tables.started),
        float(tables.held.sum() / tables.workers),
        tuple(sorted(causes, key=lambda cause: -cause.lost_s)),
        tuple(compared),
        tuple(notes),
    )
    return Examined(explanation, tables, workers.excess)


@dataclass(frozen=True, slots=True, eq=False)
class _Slow:
    """The slow periods of some units, with the factor of each, and their excess (s), (T, N)."""

    periods: Sequence[SlowPeriod]
    excess: Floats

    def of(self, unit: int) -> list[SlowPeriod]:
        return [period for period in self.periods if period.unit == unit]

    @property
    def units(self) -> list[int]:
        return sorted({period.unit for period in self.periods})


def _none(seconds: Floats) -> _Slow:
    return _Slow([], np.zeros_like(seconds))


def _slow(seconds: Floats, least_factor: float, error: float = FAMILY_ERROR) -> _Slow:
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
        return _Slow([], excess)
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
    return _Slow(periods, excess)


def _middle(values: Floats) -> float:
    """Return the mean of the middle half."""
    ordered, cut = np.sort(values), len(values) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def _communicating(tables: Tables) -> float:
    """Return the largest share of its time that a worker communicated."""
    spent = np.nansum(tables.ended - tables.started, axis=0)
    more = np.nansum(tables.ended - tables.computed - tables.held, axis=0)
    return float((more / np.maximum(spent, 1e-9)).max())


def _slow_links(transits: Floats) -> dict[tuple[int, int | None], _Slow]:
    """Return the slow links by worker and server; None: of the worker to all servers.

    Args:
        transits: Seconds by server, iteration and worker, shape (M, T, N). A link is compared with
            those of the other workers to the same server, since messages of a worker to its
            servers may wait for each other.
    """
    servers, error = len(transits), FAMILY_ERROR / len(transits)
    each = [_slow(transits[server], _LEAST_OF_OTHERS, error) for server in range(servers)]
    found: dict[tuple[int, int | None], _Slow] = {}
    for worker in sorted({unit for slow in each for unit in slow.units}):
        mine = [server for server in range(servers) if worker in each[server].units]
        if len(mine) == servers:
            longest = max(mine, key=lambda server: float(each[server].excess[:, worker].sum()))
            excess = np.max([each[server].excess[:, worker] for server in mine], axis=0)
            found[worker, None] = _Slow(each[longest].of(worker), excess)
        else:
            for server in mine:
                slow = each[server]
                found[worker, server] = _Slow(slow.of(worker), slow.excess[:, worker])
    return found


def _of_workers(
    tables: Tables,
    workers: _Slow,
    links: dict[tuple[int, int | None], _Slow],
    transits: Transits | None,
) -> list[Cause]:
    """Return the causes that delay a worker's arrival: slow computing, and slow links."""
    late = np.zeros_like(workers.excess)
    for (worker, _), slow in links.items():
        late[:, worker] = np.maximum(late[:, worker], slow.excess)
    arrivals = tables.computed
    if transits is not None:
        arrivals = arrivals + np.nan_to_num(transits.there)
        # An answer that was late in the iteration before has delayed this one.
        back = transits.back - np.nanmedian(np.nan_to_num(transits.back), axis=1, keepdims=True)
        late[1:] += np.where(late[1:] > 0, np.maximum(np.nan_to_num(back[:-1]), 0.0), 0.0)
    whole = workers.excess + late
    if not whole.any():
        return []
    charged = _charged(tables, whole, arrivals)
    share = np.divide(workers.excess, whole, out=np.zeros_like(whole), where=whole > 0)
    by_worker = charged * share if tables.joins is None else charged
    found = [
        _cause(
            tables, "worker", worker, None, workers.of(worker), float(by_worker[:, worker].sum())
        )
        for worker in workers.units
    ]
    for (worker, server), slow in links.items():
        total = sum(other.excess for (one, _), other in links.items() if one == worker)
        mine = np.divide(slow.excess, total, out=np.zeros(len(late)), where=slow.excess > 0)
        lost = float((charged[:, worker] * (1 - share[:, worker]) * mine).sum())
        cause = _cause(tables, "link", worker, server, slow.periods, lost)
        if cause.share >= _LEAST_SHARE:
            found.append(cause)
    return found


def _charged(tables: Tables, excess: Floats, arrivals: Floats) -> Floats:
    """Return the seconds that each worker is charged for in each iteration or all-reduce."""
    if not tables.barrier:
        charged, of_held = excess, np.zeros(tables.workers)
        if tables.servers:
            held, of_held = held_because_of(excess, tables.computed, pulls_held(tables))
            charged = excess + held
        if not tables.ends_with_iterations:
            return np.asarray(charged / tables.workers)
        lost = at_the_end(np.nanmax(arrivals, axis=0), excess.sum(axis=0) + of_held)
        return np.asarray(charged * (lost / charged.sum()))
    until, late = tables.ended, excess
    if tables.joins is not None:
        at = np.maximum(tables.joins, 0), np.arange(tables.workers)
        joined = tables.joins >= 0
        arrivals = np.where(joined, tables.computed[at], np.nan)
        until = np.where(joined, tables.ended[at], np.nan)
        sums = np.cumsum(excess, axis=0)[at]
        late = np.diff(np.where(joined, sums, 0.0), axis=0, prepend=0.0)
        late = np.where(joined, np.maximum(late, 0.0), 0.0)
    is_usual = (late <= 0) & ~np.isnan(until)
    is_usual |= ~is_usual.any(axis=1, keepdims=True)
    over = np.where(is_usual & ~np.isnan(until), until, np.inf).min(axis=1)
    return shared(arrivals, late, over)


def _of_servers(tables: Tables, servers: _Slow, needed: Floats) -> list[Cause]:
    """Return the slow servers, with the seconds that workers waited for their answers longer.

    A worker waits for the last answer, so at barriers the slowest server counts; elsewhere the mean
    over the workers of the requests that the server answered last.
    """
    if tables.barrier:
        lost = shared(needed, servers.excess).sum(axis=0)
    else:
        last = tables.shard[:, :, None] == np.arange(tables.servers)
        lost = (last * servers.excess[:, None, :]).sum(axis=(0, 1)) / tables.workers
    recorded = max(int((~np.isnan(needed)).any(axis=1).sum()), 1)
    lost = lost * (len(needed) / recorded)  # of long runs some iterations are left out
    found = [
        _cause(tables, "server", None, server, servers.of(server), float(lost[server]))
        for server in servers.units
    ]
    return [cause for cause in found if cause.share >= _LEAST_SHARE]


def _cause(
    tables: Tables,
    kind: Kind,
    worker: int | None,
    server: int | None,
    periods: Sequence[SlowPeriod],
    lost_s: float,
) -> Cause:
    column = slice(None) if worker is None else worker
    begins, ends = tables.started[:, column], tables.ended[:, column]
    if begins.ndim > 1:
        begins, ends = np.nanmin(begins, axis=1), np.nanmax(ends, axis=1)
    last_row = len(begins) - 1
    shown, lengths = [], []
    for period in periods:
        last = last_row if period.last is None else period.last
        inside = slice(period.first, last + 1)
        start, end = np.nanmin(begins[inside]), np.nanmax(ends[inside])
        shown.append(Period(period.first, period.last, float(start), float(end), period.factor))
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
