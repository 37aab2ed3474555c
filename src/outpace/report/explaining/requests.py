"""Times of requests to servers in a run, by server, iteration and worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from outpace.record.folder import MESSAGES, TIMING, read_table
from outpace.record.reading import reading
from outpace.record.timing import read_timing
from outpace.report.explaining.charging import Holds
from outpace.report.explaining.tables import Floats, Ints, Tables

_TICK_S = 5e-10  # times are whole nanoseconds


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Durations of requests to servers, in s, by server, iteration and worker, shapes (M, T, N).

    NaN: it is unknown.

    Args:
        under_way: The request and its answer on the network, without the time at the server. In a
            real run also what a request lies in the socket of a server that is busy or stopped.
        handling: To handle the request, without waiting, with the update if it has caused one.
            None: the run did not record what servers did.
        answering: To make the answer and give it to the socket; 0: there was none.
    """

    under_way: Floats
    handling: Floats | None
    answering: Floats


def requests_of(tables: Tables) -> Requests | None:
    """Return what requests needed; None: the run did not record it.

    Real runs have it in timing.parquet, simulated ones with `network: {log: true}` in
    messages.parquet; without, their trace says when pushes arrived, and an answer is taken to be
    under way as long as its push.
    """
    if tables.is_real:
        return _timed(tables) if (tables.folder / TIMING).exists() else None
    if (tables.folder / MESSAGES).exists():
        return _logged(tables)
    there = tables.by_server("push", "start_ns") - tables.computed
    return Requests(2 * np.where(there > 0, there, np.nan), None, np.zeros(there.shape))


def _timed(tables: Tables) -> Requests:
    """Return the times of a real run; of a push and a pull of an iteration the longer one."""
    timing = read_timing(tables.folder)
    what = np.array(timing["what"].to_pylist())
    place = [
        timing[name].fill_null(-1).to_numpy().astype(np.int64)
        for name in ("server", "iteration", "worker")
    ]
    shape = (tables.servers, *tables.started.shape)
    inside = (what == "push") | (what == "pull")
    for numbers, most in zip(place, shape, strict=True):
        inside &= (numbers >= 0) & (numbers < most)

    def column(name: str) -> Floats:
        values = timing[f"{name}_ns"].cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray(values * 1e-9)

    def placed(seconds: Floats) -> Floats:
        found = np.full(shape, -np.inf)
        known = inside & ~np.isnan(seconds)
        np.maximum.at(found, tuple(numbers[known] for numbers in place), seconds[known])
        return np.where(np.isfinite(found), found, np.nan)

    at_server = column("answered") - column("received")
    handling, answering = (
        placed(column(end) - column(begin))
        for begin, end in (("begun", "done"), ("answer_begun", "answered"))
    )
    under_way = placed(column("arrived") - column("sent") - at_server)
    return Requests(under_way, handling, np.nan_to_num(answering))


def _logged(tables: Tables) -> Requests:
    """Return the times of a simulated run from its log of messages and its trace.

    A server works on what it got from when it came or the work before was done, whichever is later.
    """
    path = tables.folder / MESSAGES
    with reading(path):
        table = read_table(path)
        kind, sender, receiver = (
            np.array(table[name].cast(pa.string()).fill_null("").to_pylist(), str)
            for name in ("kind", "sender", "receiver")
        )
        asked, started, arrived = (
            table[f"{name}_ns"].cast(pa.int64()).fill_null(-1).to_numpy() * 1e-9
            for name in ("requested", "started", "delivered")
        )
        if min(times.min(initial=0) for times in (asked, started, arrived)) < 0:
            raise ValueError("a message in it lacks a time")
        is_reply = kind == "reply"
        worker = _number(np.where(is_reply, receiver, sender), "worker-")
        server = _number(np.where(is_reply, sender, receiver), "server-")
    # A push leaves at the end of its computation, and an answer is there before its iteration ends.
    iteration = np.full(len(kind), -1)
    for one in range(tables.workers):
        mine = worker == one
        ends = np.fmax.accumulate(np.nan_to_num(tables.ended[:, one], nan=-np.inf))
        done = np.fmax.accumulate(np.nan_to_num(tables.computed[:, one], nan=-np.inf))
        sent = np.searchsorted(done, asked[mine] + _TICK_S, side="right") - 1
        got = np.searchsorted(ends, arrived[mine] - _TICK_S, side="left")
        iteration[mine] = np.where(is_reply[mine], got, sent)
    shape = (tables.servers, *tables.started.shape)
    inside = (worker >= 0) & (server >= 0) & (server < shape[0])
    inside &= (iteration >= 0) & (iteration < shape[1])

    def placed(what: str, values: Floats) -> Floats:
        found, chosen = np.full(shape, np.nan), inside & (kind == what)
        found[server[chosen], iteration[chosen], worker[chosen]] = values[chosen]
        return found

    released = tables.by_server("pull", "end_ns")
    came = np.stack([placed("push", arrived), placed("pull", arrived), released])
    handled, judged = (tables.by_server(event, "start_ns") for event in ("push", "pull"))
    done = np.stack([handled, judged, placed("reply", asked)])
    needed = np.zeros(done.shape)
    for one in range(tables.servers):
        came_one, done_one = came[:, one].ravel(), done[:, one].ravel()
        order = np.lexsort((came_one, done_one))  # NaN last
        before = np.empty_like(done_one)
        before[order] = np.concatenate([[-np.inf], done_one[order][:-1]])
        needed[:, one] = (done_one - np.maximum(came_one, before)).reshape(needed[:, one].shape)
    pushes, pulls, answering = np.maximum(needed, 0.0)
    there, back = placed("push", arrived - started), placed("reply", arrived - started)
    handling = pushes + np.nan_to_num(pulls)
    return Requests(there + np.nan_to_num(back), handling, np.nan_to_num(answering))


def _number(names: np.ndarray[Any, Any], prefix: str) -> Ints:
    """Return the numbers of nodes; -1 for those of another kind."""
    unique, of = np.unique(names, return_inverse=True)
    numbers = [int(name.removeprefix(prefix)) if name.startswith(prefix) else -1 for name in unique]
    return np.asarray(np.array(numbers, np.int64)[of.ravel()])


def pulls_held(tables: Tables) -> Holds:
    """Return the holds that delayed a worker: of an iteration's pulls the one answered last."""
    end, begin, by = (
        tables.by_server("pull", column) for column in ("end_ns", "start_ns", "released_by")
    )
    last = np.where(np.isnan(end), -np.inf, end).argmax(axis=0)[None]
    end, begin, by = (np.take_along_axis(table, last, axis=0)[0] for table in (end, begin, by))
    chosen = (by >= 0) & (end > begin)
    held = np.broadcast_to(np.arange(tables.workers), chosen.shape)[chosen]
    return Holds(held, by[chosen].astype(np.int64), end[chosen], (end - begin)[chosen])
