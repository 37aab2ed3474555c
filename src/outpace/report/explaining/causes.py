"""Compares the workers, servers and links of a recorded run, and charges their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from outpace.predict.slow import SlowPeriod, fast_units, pattern_of, slow_units
from outpace.report.explaining.charging import at_the_end, held_because_of, shared
from outpace.report.explaining.explanation import Cause, Explanation, Faster, Kind, Period
from outpace.report.explaining.requests import Requests, pulls_held, requests_of
from outpace.report.explaining.servers import LEAST_FACTOR, slow_servers
from outpace.report.explaining.tables import Floats, Tables, read_tables

_COMMUNICATING: Final = 0.01  # share of a worker's time, from which messages are compared
_LEAST_SHARE: Final = 0.005  # of the run, that a server or link must cost
_LEAST_S: Final = 0.1  # of a real run


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
    """An explanation, and what is behind it.

    Args:
        delays: Of each cause, what it added to the time of each worker, in s, shape (T, N).
    """

    explanation: Explanation
    tables: Tables
    delays: Sequence[Floats]


class _Found(NamedTuple):
    """A cause, by iterations.

    Args:
        delay: What it added to the time of each worker, in s, shape (T, N).
    """

    kind: Kind
    worker: int | None
    server: int | None
    periods: Sequence[SlowPeriod]
    delay: Floats
    lost_s: float = 0.0


def examined(folder: Path, most: int | None = None) -> Examined:
    """Return what slows a run, as `explained`."""
    tables = read_tables(folder, most)
    compared: list[Kind] = ["worker"] if tables.workers > 1 else []
    requests, notes = _requests(tables)
    found: list[_Found] = []
    if requests is not None:
        compared += ["link"] if tables.workers > 1 else []
        compared += ["server"] if requests.handling is not None else []
        last = None if tables.rounds is not None else tables.shard
        found += [
            _Found(kind, None, server, periods, delay, float(delay.mean(axis=1).sum()))
            for kind, server, periods, delay in slow_servers(
                tables.computed, requests, tables.iteration_s, last
            )
        ]
    found = [*_workers(tables, requests, found), *found]
    least_s = max(_LEAST_SHARE * tables.time_s, _LEAST_S * tables.is_real)
    found = [each for each in found if each.kind == "worker" or each.lost_s >= least_s]
    found.sort(key=lambda each: -each.lost_s)
    causes = tuple(_cause(tables, each) for each in found)
    faster = None
    if not any(each.kind == "worker" and each.pattern == "steady" for each in causes):
        faster = fast_units(tables.own)
    explanation = Explanation(
        str(folder),
        "wall" if tables.is_real else "virtual",
        tables.time_s,
        tables.strategy,
        tables.workers,
        tables.servers,
        len(tables.started),
        float(tables.held.sum() / tables.workers),
        causes,
        tuple(compared),
        tuple(notes),
        faster=None if faster is None else Faster(*faster),
    )
    return Examined(explanation, tables, [each.delay for each in found])


def _requests(tables: Tables) -> tuple[Requests | None, list[str]]:
    """Return the times of requests that are compared, and what is not compared, in sentences."""
    notes = []
    if tables.workers == 1:
        notes.append("the run has one worker, which cannot be compared with others")
    if tables.has_cut_offs:
        notes.append(
            "workers were cut off: they would have needed longer than the times that are compared"
        )
    if tables.recorded > len(tables.started):
        notes.append(
            f"the first {len(tables.started):,} of {tables.recorded:,} iterations were compared"
        )
    requests = None
    if tables.too_short:
        notes.append(f"{tables.too_short}. Servers and links are not compared")
    elif not tables.servers:
        notes.append("without servers, links are not compared: an all-reduce uses all at once")
        if tables.rounds is None:
            notes.append("workers continue while they average: a slow one costs its own time")
    elif _communicating(tables) < _COMMUNICATING:
        notes.append(
            f"messages took less than {100 * _COMMUNICATING:.0f} % of the time: servers and links "
            "are not compared"
        )
    else:
        requests = requests_of(tables)
        if requests is None or requests.handling is None:
            notes.append(
                "servers are not compared: the run has no times of their requests; a simulation "
                "records them with network.log=true"
            )
    return requests, notes


def _communicating(tables: Tables) -> float:
    """Return the largest share of its time that a worker communicated."""
    spent = np.nansum(tables.ended - tables.started, axis=0)
    more = np.nansum(tables.ended - tables.computed - tables.held, axis=0)
    return float((more / np.maximum(spent, 1e-9)).max())


def _workers(tables: Tables, requests: Requests | None, servers: Sequence[_Found]) -> list[_Found]:
    """Return the workers that compute slowly, and those with a slow link, with their cost."""
    slow = slow_units(tables.own)
    found = [
        _Found("worker", worker, None, slow.of(worker), _column(slow.excess, worker))
        for worker in slow.units
    ]
    way = np.zeros_like(tables.own)
    if requests is not None:
        way = np.fmax.reduce(requests.under_way, axis=0)
        # Requests to a slow server wait for each other, in the same order again and again.
        busy = {each.server for each in servers if each.kind == "server"}
        found += _links(requests.under_way, [m for m in range(tables.servers) if m not in busy])
    whole = sum((each.delay for each in found), np.zeros_like(tables.own))
    if not whole.any():
        return found
    charged, rounds = _charged(tables, whole, np.nan_to_num(way))
    every = np.add.reduceat(whole, rounds)
    costs = []
    for each in found:
        mine = np.add.reduceat(each.delay, rounds)
        share = np.divide(mine, every, out=np.zeros_like(mine), where=every > 0)
        costs.append(float((charged * share).sum()))
    return [each._replace(lost_s=lost_s) for each, lost_s in zip(found, costs, strict=True)]


def _links(under_way: Floats, servers: Sequence[int]) -> list[_Found]:
    """Return the slow links of workers: to one of the servers, or to all if to several.

    A link is compared with those of the other workers to the same server, since messages of a
    worker to its servers may wait for each other.
    """
    each = {server: slow_units(under_way[server], LEAST_FACTOR) for server in servers}
    found = []
    for worker in sorted({unit for slow in each.values() for unit in slow.units}):
        excess = {m: _column(slow.excess, worker) for m, slow in each.items() if slow.of(worker)}
        longest = max(excess, key=lambda m: float(excess[m].sum()))
        server = longest if len(excess) == 1 < len(under_way) else None
        longer = np.max(list(excess.values()), axis=0)
        found.append(_Found("link", worker, server, each[longest].of(worker), longer))
    return found


def _column(table: Floats, worker: int) -> Floats:
    """Return the table with 0 for all other workers."""
    return np.where(np.arange(table.shape[1]) == worker, table, 0.0)


def _charged(tables: Tables, excess: Floats, way: Floats) -> tuple[Floats, np.ndarray]:
    """Return the seconds that each worker is charged for by round, shape (R, N), and the rounds.

    Args:
        excess: What each worker needed longer than the others, shape (T, N).
        way: How long its requests and answers were under way, shape (T, N).
    """
    rounds = tables.rounds
    if rounds is not None:
        until = None
        if tables.servers:  # a server may end an iteration without its slow workers
            spent = tables.ended - tables.started
            usual = np.where((excess <= 0) & ~np.isnan(spent), spent, np.inf).min(axis=1)
            until = np.where(np.isfinite(usual), usual, np.inf)
        arrivals = tables.own + way if tables.servers else np.add.reduceat(tables.own, rounds)
        return shared(arrivals, np.add.reduceat(excess, rounds), until), rounds
    rounds = np.arange(len(excess))
    charged, of_held = excess, np.zeros(tables.workers)
    if tables.servers:
        held, of_held = held_because_of(excess, tables.computed, pulls_held(tables))
        charged = excess + held
    if not tables.ends_with_iterations:
        return charged / tables.workers, rounds
    lost = at_the_end(np.nanmax(tables.computed + way, axis=0), excess.sum(axis=0) + of_held)
    return charged * (lost / charged.sum()), rounds


def _cause(tables: Tables, found: _Found) -> Cause:
    shown, lengths = [], []
    column = slice(None) if found.worker is None else found.worker
    begins, ends = tables.started[:, column], tables.ended[:, column]
    for period in found.periods:
        last = len(begins) - 1 if period.last is None else period.last
        start_s, end_s = _span(begins, ends, period.first, last, tables.time_s)
        shown.append(Period(period.first, period.last, start_s, end_s, period.factor))
        lengths.append(last + 1 - period.first)
    return Cause(
        found.kind,
        found.worker,
        found.server,
        pattern_of(found.periods),
        float(np.average([period.factor for period in shown], weights=lengths)),
        found.lost_s,
        found.lost_s / tables.time_s,
        min(period.named for period in found.periods),
        tuple(shown),
    )


def _span(
    begins: Floats, ends: Floats, first: int, last: int, time_s: float
) -> tuple[float, float]:
    """Return when these iterations began and ended, in s.

    The iteration in which a run was resumed from a checkpoint has no times, although its messages
    have. Then it is the time between those before and after.
    """
    began, ended = begins[first : last + 1], ends[first : last + 1]
    start_s, end_s = np.fmin.reduce(began, axis=None), np.fmax.reduce(ended, axis=None)
    if np.isnan(start_s):
        start_s = np.fmax.reduce(ends[:first], axis=None, initial=0.0)
    if np.isnan(end_s):
        end_s = np.fmin.reduce(begins[last + 1 :], axis=None, initial=time_s)
    return float(start_s), float(end_s)
