"""Compares the workers and links of a recorded run, and computes their costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from outpace.predict.slow import SlowPeriod, fast_units, pattern_of, slow_units
from outpace.report.explaining.charging import Floats, at_the_end, held_because_of, shared
from outpace.report.explaining.explanation import Cause, Explanation, Faster, Kind, Period
from outpace.report.explaining.tables import (
    RequestTimes,
    Tables,
    pulls_held,
    read_tables,
    requests_of,
)

_LEAST_FACTOR: Final = 1.5  # factor of a link below which it is not named; the same for a server
_IGNORED: Final = 0.02  # share of an iteration that the excess of a server must exceed
_LEAST_SHARE: Final = 0.005  # share of the run that a link must cost
_LEAST_S: Final = 0.1  # least length of a real run


class Found(NamedTuple):
    """A worker, or its link, that is slower than the others.

    Args:
        worker, server: See `Cause`.
        delay: Seconds by which it delayed each worker, shape (T, N).
        lost_s: Seconds by which the run was longer because of it.
    """

    kind: Kind
    worker: int
    server: int | None
    periods: Sequence[SlowPeriod]
    delay: Floats
    lost_s: float = 0.0


def explained(folder: str | Path, most: int | None = None) -> Explanation:
    """Return the causes that slow a run, from its folder.

    Args:
        most: Compare only this number of iterations, the first ones. None: all.

    Raises:
        ConfigError: with one line, if the folder is not the folder of a run, has no times, or has
            fewer than 8 iterations.
    """
    return examined(Path(folder), most).explanation


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """An explanation, and the data behind it.

    Args:
        delays: For each cause, the time that it added to each worker, in s, shape (T, N).
    """

    explanation: Explanation
    tables: Tables
    delays: Sequence[Floats]


def examined(folder: Path, most: int | None = None) -> Examined:
    """Return the causes that slow a run, like `explained`."""
    tables = read_tables(folder, most)
    requests, notes = _requests(tables)
    compared: list[Kind] = ["worker"] if tables.workers > 1 else []
    busy = _slow_servers(requests, tables.iteration_s)
    if requests is not None:
        compared += ["link"] if tables.workers > 1 else []
    least_s = max(_LEAST_SHARE * tables.time_s, _LEAST_S * tables.is_real)
    found = [
        each
        for each in _workers(tables, requests, set(busy))
        if each.kind == "worker" or each.lost_s >= least_s
    ]
    found.sort(key=lambda each: -each.lost_s)
    causes = tuple(_cause(tables, each) for each in found)
    is_steady = any(each.kind == "worker" and each.pattern == "steady" for each in causes)
    faster = None if is_steady else fast_units(tables.own)
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
        (*notes, *busy.values()),
        faster=None if faster is None else Faster(*faster),
    )
    return Examined(explanation, tables, [each.delay for each in found])


def _requests(tables: Tables) -> tuple[RequestTimes | None, list[str]]:
    """Return the times of requests that are compared, and sentences about other requests."""
    notes, requests = [], None
    if tables.workers == 1:
        notes.append("the run has one worker, which cannot be compared with others")
    if tables.has_cut_offs:
        notes.append(
            "workers were cut off: they would have needed longer than the times that are compared"
        )
    if tables.recorded > len(tables.started):
        notes.append(f"only the first {len(tables.started):,} iterations were compared")
    if tables.too_short:
        notes.append(f"{tables.too_short}. Links are not compared")
    elif not tables.servers:
        notes.append("without servers, links are not compared: an all-reduce uses all at once")
        if tables.rounds is None:
            notes.append("workers continue while they average: a slow one costs its own time")
    else:
        requests = requests_of(tables)
        if requests is None:
            notes.append("links are not compared: the run has no times of its messages")
    return requests, notes


def _slow_servers(requests: RequestTimes | None, iteration_s: float) -> dict[int, str]:
    """Return the servers that handle requests slowly, each with a sentence about it.

    The requests to a slow server wait for each other, repeatedly in the same order, so the links to
    it cannot be judged.
    """
    if requests is None or requests.handling_s is None or len(requests.handling_s) < 2:
        return {}
    found = {}
    for server, mine in enumerate(requests.handling_s):
        others = float(np.median(np.delete(requests.handling_s, server)))
        if mine > _LEAST_FACTOR * others and mine - others > _IGNORED * iteration_s:
            found[server] = (
                f"server {server} handles requests {mine / others:.3g} times as slowly as the "
                "others, which delays all workers; its links are not compared"
            )
    return found


def _workers(tables: Tables, requests: RequestTimes | None, busy: set[int]) -> list[Found]:
    """Return the workers that compute slowly, and those with a slow link, with their costs."""
    slow = slow_units(tables.own)
    found = [
        Found("worker", worker, None, slow.of(worker), _column(slow.excess, worker))
        for worker in slow.units
    ]
    way = np.zeros_like(tables.own)
    if requests is not None:
        way = np.fmax.reduce(requests.under_way, axis=0)
        found += _links(requests.under_way, [m for m in range(tables.servers) if m not in busy])
    whole = sum((each.delay for each in found), np.zeros_like(tables.own))
    if not whole.any():
        return found
    charged, rounds = _charged(tables, whole, np.nan_to_num(way))
    every = np.add.reduceat(whole, rounds)
    per_second = np.divide(charged, every, out=np.zeros_like(every), where=every > 0)
    return [
        each._replace(lost_s=float((np.add.reduceat(each.delay, rounds) * per_second).sum()))
        for each in found
    ]


def _links(under_way: Floats, servers: Sequence[int]) -> list[Found]:
    """Return the slow links of workers: to one server, or to all if they are slow to several.

    A link is compared with the links of the other workers to the same server, since messages of one
    worker to its servers may wait for each other.
    """
    each = {server: slow_units(under_way[server], _LEAST_FACTOR) for server in servers}
    found = []
    for worker in sorted({unit for slow in each.values() for unit in slow.units}):
        excess = {m: _column(slow.excess, worker) for m, slow in each.items() if slow.of(worker)}
        longest = max(excess, key=lambda m: float(excess[m].sum()))
        server = longest if len(excess) == 1 < len(under_way) else None
        longer = np.max(list(excess.values()), axis=0)
        found.append(Found("link", worker, server, each[longest].of(worker), longer))
    return found


def _column(table: Floats, worker: int) -> Floats:
    """Return the table with 0 for all other workers."""
    return np.where(np.arange(table.shape[1]) == worker, table, 0.0)


def _charged(tables: Tables, excess: Floats, way: Floats) -> tuple[Floats, np.ndarray]:
    """Return the seconds charged to each worker by round, shape (R, N), and the rounds.

    Args:
        excess: Seconds that each worker needed longer than the others, shape (T, N).
        way: Seconds that its requests and answers were on the network, shape (T, N).
    """
    rounds = tables.rounds
    if rounds is not None:
        until = None
        if tables.servers:  # a server may end an iteration without the slow workers
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


def _cause(tables: Tables, found: Found) -> Cause:
    shown, lengths = [], []
    begins, ends = tables.started[:, found.worker], tables.ended[:, found.worker]
    for period in found.periods:
        last = len(begins) - 1 if period.last is None else period.last
        # If a killed process has lost the times of iterations, the times before and after are used.
        start_s = np.fmin.reduce(begins[period.first : last + 1], axis=None)
        if np.isnan(start_s):
            start_s = np.fmax.reduce(ends[: period.first], axis=None, initial=0.0)
        end_s = np.fmax.reduce(ends[period.first : last + 1], axis=None)
        if np.isnan(end_s):
            end_s = np.fmin.reduce(begins[last + 1 :], axis=None, initial=tables.time_s)
        shown.append(Period(period.first, period.last, float(start_s), float(end_s), period.factor))
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
