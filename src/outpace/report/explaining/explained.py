"""Compares the workers, servers and links of a recorded run, and charges their cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from outpace.predict.slow import FAMILY_ERROR, LEAST_FACTOR, fast
from outpace.report.explaining.charging import Floats, at_the_end, held_because_of, shared
from outpace.report.explaining.cut_offs import completed
from outpace.report.explaining.explanation import Cause, Explanation, Faster, Kind
from outpace.report.explaining.messages import (
    Transits,
    between_workers_and_servers,
    pulls_held,
    requests_of,
)
from outpace.report.explaining.servers import LEAST_FACTOR as LEAST_OF_OTHERS
from outpace.report.explaining.servers import LEAST_SHARE, slow_servers
from outpace.report.explaining.slow import Slow, cause_of, nothing_slow, slow_in
from outpace.report.explaining.tables import Tables, read_tables

NO_REQUESTS: Final = (
    "servers are not compared: the run has no times of their requests; a simulation records them "
    "with network.log=true"
)
_COMMUNICATING: Final = 0.01  # share of a worker's time, from which messages are compared


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
        seconds: Run times, shape (T, N); of workers that were cut off, as if they had not been.
        excess: Seconds that each worker computed longer than the others, shape (T, N).
    """

    explanation: Explanation
    tables: Tables
    seconds: Floats
    excess: Floats


def examined(folder: Path, most: int | None = None) -> Examined:
    """Return what slows a run, as `explained`."""
    tables = read_tables(folder, most)
    notes = list(tables.notes)
    seconds, cut = completed(tables)
    workers = nothing_slow(seconds)
    if tables.workers > 1:
        workers = slow_in(seconds, LEAST_FACTOR)
    if tables.workers == 1:
        notes.append("the run has one worker, which cannot be compared with others")
    compared: list[Kind] = ["worker"] if tables.workers > 1 else []
    links, servers = dict[tuple[int, int | None], Slow](), list[Cause]()
    transits: Transits | None = None
    if tables.servers and _communicating(tables) >= _COMMUNICATING:
        transits, requests = between_workers_and_servers(tables), requests_of(tables)
        if transits is not None and tables.workers > 1:
            compared.append("link")
            of_links = transits.each if tables.is_real or requests is None else requests.under_way
            links = _slow_links(of_links)
        if requests is not None:
            compared.append("server")
            servers = slow_servers(tables, requests)
            busy = {cause.server for cause in servers if cause.kind == "server"}
            # Requests to a slow server wait for each other, in the same order again and again.
            links = {link: slow for link, slow in links.items() if link[1] not in busy}
        else:
            notes.append(NO_REQUESTS)
    elif tables.servers:
        notes.append(
            f"messages took less than {100 * _COMMUNICATING:.0f} % of the time: servers and links "
            "are not compared"
        )
    else:
        notes.append("without servers, links are not compared: an all-reduce uses all at once")
    if cut is not None and cut.any():
        notes.append(
            f"workers were cut off {int(cut.sum()):,} times: what they would have needed is drawn "
            "from their whole run times"
        )
    causes = _of_workers(tables, workers, links, transits if links else None)
    causes += servers
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
        faster=_faster(seconds, workers),
    )
    return Examined(explanation, tables, seconds, workers.excess)


def _faster(seconds: Floats, slow: Slow) -> Faster | None:
    """Return the fast workers if most workers are slow."""
    if any(period.last is None for period in slow.periods):
        return None  # the slow workers are named, and fewer
    found = fast(seconds)
    return None if found is None else Faster(found.units, found.factor)


def _communicating(tables: Tables) -> float:
    """Return the largest share of its time that a worker communicated."""
    spent = np.nansum(tables.ended - tables.started, axis=0)
    more = np.nansum(tables.ended - tables.computed - tables.held, axis=0)
    return float((more / np.maximum(spent, 1e-9)).max())


def _slow_links(transits: Floats) -> dict[tuple[int, int | None], Slow]:
    """Return the slow links by worker and server; None: of the worker to all servers.

    Args:
        transits: Seconds by server, iteration and worker, shape (M, T, N). A link is compared with
            those of the other workers to the same server, since messages of a worker to its
            servers may wait for each other.
    """
    servers, error = len(transits), FAMILY_ERROR / len(transits)
    each = [slow_in(transits[server], LEAST_OF_OTHERS, error) for server in range(servers)]
    found: dict[tuple[int, int | None], Slow] = {}
    for worker in sorted({unit for slow in each for unit in slow.units}):
        mine = [server for server in range(servers) if worker in each[server].units]
        if len(mine) == servers:
            longest = max(mine, key=lambda server: float(each[server].excess[:, worker].sum()))
            excess = np.max([each[server].excess[:, worker] for server in mine], axis=0)
            found[worker, None] = Slow(each[longest].of(worker), excess)
        else:
            for server in mine:
                slow = each[server]
                found[worker, server] = Slow(slow.of(worker), slow.excess[:, worker])
    return found


def _of_workers(
    tables: Tables,
    workers: Slow,
    links: dict[tuple[int, int | None], Slow],
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
    by_worker = charged * share if tables.joinings is None else charged
    found = [
        cause_of(
            tables, "worker", worker, None, workers.of(worker), float(by_worker[:, worker].sum())
        )
        for worker in workers.units
    ]
    for (worker, server), slow in links.items():
        total = sum(other.excess for (one, _), other in links.items() if one == worker)
        mine = np.divide(slow.excess, total, out=np.zeros(len(late)), where=slow.excess > 0)
        lost = float((charged[:, worker] * (1 - share[:, worker]) * mine).sum())
        cause = cause_of(tables, "link", worker, server, slow.periods, lost)
        if cause.share >= LEAST_SHARE:
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
    if tables.joinings is not None:
        arrivals, until = tables.joinings.arrived, tables.joinings.ended
        late = tables.joinings.late(excess, tables.started)
    is_usual = (late <= 0) & ~np.isnan(until)
    is_usual |= ~is_usual.any(axis=1, keepdims=True)
    over = np.where(is_usual & ~np.isnan(until), until, np.inf).min(axis=1)
    return shared(arrivals, late, over)
