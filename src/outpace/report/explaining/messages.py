"""Times of messages and servers in a run, by server, iteration and worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.record.folder import MESSAGES, read_table
from outpace.record.reading import reading
from outpace.report.explaining.charging import Holds, Ints
from outpace.report.explaining.tables import Floats, Tables

_TICK: Final = 5e-10  # s; times are whole nanoseconds


@dataclass(frozen=True, slots=True, eq=False)
class Transits:
    """How long messages were under way, in s; NaN where it is unknown.

    Args:
        each: By server, iteration and worker, shape (M, T, N): in a simulated run from the end of
            the computation until the push has reached the server; in a real one of the request and
            the answer, without the time at the server, so that the clocks of two processes
            do not matter.
        there: Of the pushes of an iteration, until the last has arrived, shape (T, N).
        back: Of the last answer, shape (T, N), beside what is in `each`.
    """

    each: Floats
    there: Floats
    back: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Durations of requests to servers, in s, by server, iteration and worker, shapes (M, T, N).

    NaN: it is unknown.

    Args:
        under_way: The request and its answer on the network, without the time at the server. In a
            real run also what a request lies in the socket of a server that is busy or stopped.
        handling: To handle the request, without waiting: with the update if it has caused one.
        answering: To make the answer and give it to the socket.
    """

    under_way: Floats
    handling: Floats
    answering: Floats


def requests_of(tables: Tables) -> Requests | None:
    """Return what requests needed; None: the run did not record it.

    Real runs have it in timing.parquet, simulated ones with `network: {log: true}` in
    messages.parquet.
    """
    if not tables.is_real:
        return _logged(tables) if (tables.folder / MESSAGES).exists() else None
    timing = tables.timing()
    if timing is None:
        return None
    at_server = _column(timing, "answered") - _column(timing, "received")
    under_way = _column(timing, "arrived") - _column(timing, "sent") - at_server
    return Requests(
        _placed(tables, timing, under_way),
        _placed(tables, timing, _column(timing, "done") - _column(timing, "begun")),
        _placed(tables, timing, _column(timing, "answered") - _column(timing, "answer_begun")),
    )


def _logged(tables: Tables) -> Requests:
    """Return the times of a simulated run from its log of messages and its trace."""
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
        sent = np.searchsorted(done, asked[mine] + _TICK, side="right") - 1
        got = np.searchsorted(ends, arrived[mine] - _TICK, side="left")
        iteration[mine] = np.where(is_reply[mine], got, sent)
    shape = (tables.servers, *tables.started.shape)
    inside = (worker >= 0) & (server >= 0) & (server < shape[0])
    inside &= (iteration >= 0) & (iteration < shape[1])

    def placed(what: str, values: Floats) -> Floats:
        found, chosen = np.full(shape, np.nan), inside & (kind == what)
        found[server[chosen], iteration[chosen], worker[chosen]] = values[chosen]
        return found

    handled, _ = tables.matrix("push", "start_ns")
    judged, _ = tables.matrix("pull", "start_ns")
    released, _ = tables.matrix("pull", "end_ns")
    given = placed("reply", asked)
    handling, answering = np.full((2, *shape), np.nan)
    for one in range(tables.servers):
        pushes, pulls, answering[one] = _needed(
            (placed("push", arrived)[one], handled[one]),
            (placed("pull", arrived)[one], judged[one]),
            (released[one], given[one]),
        )
        handling[one] = pushes + np.nan_to_num(pulls)
    under_way = placed("push", arrived - started) + np.nan_to_num(
        placed("reply", arrived - started)
    )
    return Requests(under_way, handling, answering)


def _needed(*work: tuple[Floats, Floats]) -> list[Floats]:
    """Return what a server needed for each piece of work, in s.

    It begins when it was asked and had done all before. Of work that is done at one moment, all but
    the first that came took no time.

    Args:
        work: Kinds of work, each with the times when it came and when it was done; of work that
            came at one moment, earlier kinds are first.
    """
    came, done = (np.concatenate([each[i].ravel() for each in work]) for i in (0, 1))
    order = np.lexsort((came, done))  # NaN last
    before = np.empty_like(done)
    before[order] = np.concatenate([[-np.inf], done[order][:-1]])
    needed = np.maximum(done - np.maximum(came, before), 0.0)
    parts = np.split(needed, np.cumsum([each[0].size for each in work])[:-1])
    return [part.reshape(each[0].shape) for part, each in zip(parts, work, strict=True)]


def _number(names: np.ndarray[Any, Any], prefix: str) -> Ints:
    """Return the numbers of nodes; -1 for those of another kind."""
    unique, of = np.unique(names, return_inverse=True)
    numbers = [int(name.removeprefix(prefix)) if name.startswith(prefix) else -1 for name in unique]
    return np.asarray(np.array(numbers, np.int64)[of.ravel()])


def between_workers_and_servers(tables: Tables) -> Transits | None:
    """Return the times of messages; None: the run did not record them."""
    if not tables.is_real:
        arrived, _ = tables.matrix("push", "start_ns")
        answered, _ = tables.matrix("pull", "end_ns")
        each = _positive(arrived - tables.computed)
        return Transits(each, _last(each), _positive(tables.ended - _last(answered)))
    timing = tables.timing()
    if timing is None:
        return None
    sent, arrived = _column(timing, "sent"), _column(timing, "arrived")
    at_server = _column(timing, "answered") - _column(timing, "received")
    each = _positive(_placed(tables, timing, arrived - sent - at_server))
    return Transits(each, _last(each) / 2, np.zeros(tables.computed.shape))


def _last(times: Floats) -> Floats:
    """Return the largest over the servers, shape (T, N); NaN if none is known."""
    found = np.where(np.isnan(times), -np.inf, times).max(axis=0)
    return np.where(np.isfinite(found), found, np.nan)


def pulls_held(tables: Tables) -> Holds:
    """Return the holds that delayed a worker.

    Of an iteration's pulls, the one that was answered last counts.
    """
    ends, by = tables.matrix("pull", "end_ns")
    begins, _ = tables.matrix("pull", "start_ns")
    last = np.where(np.isnan(ends), -np.inf, ends).argmax(axis=0)[None]
    end, begin = (np.take_along_axis(table, last, axis=0)[0] for table in (ends, begins))
    ended_by = np.take_along_axis(by, last, axis=0)[0]
    chosen = (ended_by >= 0) & (end > begin)
    held = np.broadcast_to(np.arange(tables.workers), chosen.shape)[chosen]
    return Holds(held, ended_by[chosen], end[chosen], (end - begin)[chosen])


def _column(timing: pa.Table, name: str) -> Floats:
    column = timing[f"{name}_ns"].cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(column * 1e-9)


def _placed(tables: Tables, timing: pa.Table, seconds: Floats) -> Floats:
    """Return the times of pushes and pulls by place, shape (M, T, N); of several the longest."""
    what = np.array(timing["what"].to_pylist())
    worker, server, iteration = (
        timing[name].fill_null(-1).to_numpy().astype(np.int64)
        for name in ("worker", "server", "iteration")
    )
    shape = (tables.servers, *tables.started.shape)
    inside = ((what == "push") | (what == "pull")) & ~np.isnan(seconds)
    for numbers, most in zip((server, iteration, worker), shape, strict=True):
        inside &= (numbers >= 0) & (numbers < most)
    found = np.full(shape, -np.inf)
    np.maximum.at(found, (server[inside], iteration[inside], worker[inside]), seconds[inside])
    return np.where(np.isfinite(found), found, np.nan)


def _positive(seconds: Floats) -> Floats:
    return np.where(seconds > 0, seconds, np.nan)
