"""Times of messages and servers in a run, by server, iteration and worker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from outpace.report.explaining.charging import Holds
from outpace.report.explaining.tables import Floats, Tables


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


def served(tables: Tables) -> Floats | None:
    """Return how long each server needed for a request without waiting (s), shape (T, M).

    The mean over the workers: from the begin of handling the request until it is handled, with the
    update if it has caused one, and from the begin of the answer until it is given to the
    socket. None: the run did not record it.
    """
    timing = tables.timing()
    if timing is None:
        return None
    spans = _column(timing, "done") - _column(timing, "begun")
    spans = spans + np.nan_to_num(_column(timing, "answered") - _column(timing, "answer_begun"))
    each = _placed(tables, timing, spans)
    known = ~np.isnan(each)
    mean = np.where(known, each, 0.0).sum(axis=2) / np.maximum(known.sum(axis=2), 1)
    return _positive(np.where(known.any(axis=2), mean, np.nan).T)


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
