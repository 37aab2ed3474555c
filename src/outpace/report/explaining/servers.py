"""Compares the servers of a run, and their links to all workers, and charges their cost.

Two times of the requests to a server are compared with those to the other servers: how long the
server needed to handle and to answer a request, and how long request and answer were under way. Of
the latter the shortest among the workers counts, since it belongs to the server: no other request
was before it, and its worker's link is not slow. So three causes are told apart:

- a server that needs longer for its requests: `server`;
- a server whose messages are longer under way, for several iterations: `link` without a worker;
- a server that once answers an iteration's length later or more: `server`, a stop. For these the
  longest request among the workers counts, as a server may have handled others before it stopped. A
  stopped process, one that is not reachable, and a packet that is lost look the same from outside.

A row of the comparison is an iteration where workers wait for each other, else a time of the length
of an iteration: a stop then hits workers in different iterations. A single server is compared with
itself: only stops are named.

Where workers wait for each other, the last answer of an iteration counts. A server handles the
requests one after another in the order of arrival, and then answers them all: if it needs longer,
each request waits for those before. So its end is computed with what it needed, and again without
what it needed longer. Elsewhere a request costs what it needed longer itself, if its answer was the
last of its worker's iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from outpace.predict.slow import FAMILY_ERROR, LEAST_PAUSE, sudden
from outpace.predict.slow.period import SlowPeriod, merged
from outpace.report.explaining.charging import Floats, Ints, shared
from outpace.report.explaining.explanation import Cause, Kind
from outpace.report.explaining.messages import Requests
from outpace.report.explaining.slow import Slow, cause_of, slow_in
from outpace.report.explaining.tables import Tables

LEAST_FACTOR: Final = 1.5  # of a server or link below which it is not named
LEAST_SHARE: Final = 0.02  # of the run, that a server or link must cost
_MOST_STOPS: Final = 8
_MOST_ROWS: Final = 10_000_000
_ADDED: Final = (1.0, 0.1, 0.02)  # parts of an iteration
_STOP: Final = 3  # rows: a time under way that is longer for at most so many is a stop


Place: TypeAlias = tuple[int, int]  # row, server


class _Rows(NamedTuple):
    """Rows of the comparison.

    Args:
        of: Row of each iteration of each worker, shape (T, N); -1: none.
        iteration: An iteration of each row, shape (R,).
        width_s: Length of a row in s; 0 if it is an iteration.
    """

    of: Ints
    iteration: Ints
    width_s: float


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Times by row and server, shape (R, M), and the slow servers in it."""

    seconds: Floats
    slow: Slow

    def with_factors(self, server: int) -> list[SlowPeriod]:
        """Return the slow periods of a server with the factors of its own times."""
        found = []
        for period in self.slow.of(server):
            inside = slice(period.first, None if period.last is None else period.last + 1)
            whole = float(np.nansum(self.seconds[inside, server]))
            usual = whole - float(self.slow.excess[inside, server].sum())
            factor = whole / max(usual, 1e-6 * whole, 1e-9)
            found.append(replace(period, factor=factor))
        return found


def slow_servers(tables: Tables, requests: Requests) -> list[Cause]:
    """Return the slow servers, and the slow links of servers to all workers, with their cost."""
    rows = _rows(tables)
    ignored_s = LEAST_SHARE * _iteration_s(tables)
    work = requests.handling + np.nan_to_num(requests.answering)
    handling = _compared(_by_row(work, rows, "mean"), ignored_s)
    under_way = _compared(_by_row(requests.under_way, rows, "least"), ignored_s)
    whole = requests.under_way + np.nan_to_num(work)
    longest = _by_row(whole, rows, "most")
    stops = stops_in(whole, rows.of, longest, _iteration_s(tables))
    under_way = _with_stops(under_way, longest, stops)
    if not handling.slow.periods and not under_way.slow.periods:
        return []
    lost = _lost(tables, requests, rows, handling, under_way)
    found: list[Cause] = []
    for server in range(tables.servers):
        of_server, of_link, share = _told_apart(server, handling, under_way)
        costs = lost[0][server] + (1 - share) * lost[1][server], share * lost[1][server]
        kinds: tuple[Kind, Kind] = ("server", "link")
        for kind, periods, lost_s in zip(kinds, (of_server, of_link), costs, strict=True):
            if periods and lost_s >= LEAST_SHARE * tables.time_s:
                each_s = under_way.seconds[:, server]
                found.append(_cause(tables, kind, server, periods, float(lost_s), rows, each_s))
    return found


def _told_apart(
    server: int, handling: _Table, under_way: _Table
) -> tuple[list[SlowPeriod], list[SlowPeriod], float]:
    """Return the slow periods of a server, those of its link, and the link's share of the excess.

    Where the server is busy for longer, requests lie in its socket for longer, too.
    """
    mine = handling.with_factors(server)
    of_link: list[SlowPeriod] = []
    link_s = 0.0
    for period in under_way.with_factors(server):
        last = _last(period, under_way)
        if last - period.first < _STOP or any(
            period.first <= _last(other, handling) and other.first <= last
            for other in handling.slow.of(server)
        ):
            mine.append(period)
        else:
            of_link.append(period)
            link_s += float(under_way.slow.excess[period.first : last + 1, server].sum())
    whole_s = float(under_way.slow.excess[:, server].sum())
    return merged(mine), of_link, link_s / whole_s if whole_s else 0.0


def _last(period: SlowPeriod, table: _Table) -> int:
    return len(table.seconds) - 1 if period.last is None else period.last


def _cause(
    tables: Tables,
    kind: Kind,
    server: int,
    periods: Sequence[SlowPeriod],
    lost_s: float,
    rows: _Rows,
    each_s: Floats,
) -> Cause:
    """Return the cause; `each_s` are the times under way of its rows, which a stop makes longer."""
    spans = [(each.first, each.last) for each in periods]
    for period in periods:  # from rows to iterations
        period.first = int(rows.iteration[period.first])
        period.named = int(rows.iteration[period.named])
        period.last = None if period.last is None else int(rows.iteration[period.last])
    cause = cause_of(tables, kind, None, server, periods, lost_s)
    if not rows.width_s:
        return cause
    shown = []
    for each, (first, last) in zip(cause.periods, spans, strict=True):
        start_s, end_s = first * rows.width_s, tables.time_s
        if last is not None:
            longest_s = float(np.nanmax(each_s[first : last + 1], initial=0.0))
            end_s = min(max((last + 1) * rows.width_s, start_s + longest_s), end_s)
        shown.append(replace(each, start_s=start_s, end_s=end_s))
    return replace(cause, periods=tuple(shown))


def _iteration_s(tables: Tables) -> float:
    return float(np.nanmedian(tables.ended - tables.started))


def _rows(tables: Tables) -> _Rows:
    shape = tables.started.shape
    if tables.barrier:
        each = np.arange(shape[0])
        return _Rows(np.broadcast_to(each[:, None], shape), each, 0.0)
    width_s = _iteration_s(tables)
    known = ~np.isnan(tables.computed)
    of = np.where(known, np.nan_to_num(tables.computed) // max(width_s, 1e-9), -1).astype(np.int64)
    if of.max(initial=0) > _MOST_ROWS:
        raise ValueError("an iteration in it ends too late: there are too many to compare")
    iteration = np.zeros(int(of.max(initial=0)) + 1, np.int64)
    at = np.broadcast_to(np.arange(shape[0])[:, None], shape)
    np.maximum.at(iteration, of[known], at[known])
    return _Rows(of, np.maximum.accumulate(iteration), width_s)


def _by_row(seconds: Floats, rows: _Rows, which: Literal["least", "mean", "most"]) -> Floats:
    """Return the least, mean or longest time of the requests of each row, shape (R, M).

    NaN where there is none. A least or mean time needs two requests, if there are several workers.
    """
    servers, workers = len(seconds), seconds.shape[2]
    found = np.full((len(rows.iteration), servers), np.nan)
    for server in range(servers):
        known = ~np.isnan(seconds[server]) & (rows.of >= 0)
        at, values = rows.of[known], seconds[server][known]
        count = np.bincount(at, minlength=len(found))
        if which == "least":
            column = np.full(len(found), np.inf)
            np.minimum.at(column, at, values)
        elif which == "most":
            column = np.zeros(len(found))
            np.maximum.at(column, at, values)
        else:
            column = np.bincount(at, values, len(found)) / np.maximum(count, 1)
        enough = count >= (1 if which == "most" else min(2, workers))
        found[enough, server] = np.maximum(column[enough], 0.0)
    return found


def _compared(seconds: Floats, ignored_s: float) -> _Table:
    """Return the servers that are slower than others in a table of times.

    `ignored_s` is added to all times: differences that are much smaller have no cost.
    """
    if seconds.shape[1] == 1:
        return _Table(seconds, Slow([], np.zeros(seconds.shape)))
    return _Table(seconds, slow_in(seconds + ignored_s, LEAST_FACTOR, FAMILY_ERROR / 3))


def _with_stops(under_way: _Table, longest: Floats, stops: Sequence[Place]) -> _Table:
    """Return the table with stops: in these rows the longest times count, shape (R, M)."""
    if not stops:
        return under_way
    seconds, excess = under_way.seconds.copy(), under_way.slow.excess.copy()
    periods = list(under_way.slow.periods)
    for row, server in stops:
        usual_s = float(np.nanmedian(longest[:, server]))
        seconds[row, server] = longest[row, server]
        excess[row, server] = longest[row, server] - usual_s
        periods.append(SlowPeriod(server, row, row, row, longest[row, server] / usual_s))
    return _Table(seconds, Slow(merged(periods), excess))


def stops_in(
    times: Floats, rows_of: Ints, longest: Floats, iteration_s: float, error: float = FAMILY_ERROR
) -> list[Place]:
    """Return the rows and servers in which a request took too long to belong to the others.

    Args:
        times: Of all requests, in s, shape (M, T, N); NaN: unknown.
        rows_of: Row of each iteration of each worker, shape (T, N); -1: none.
        longest: Those that took longest, shape (R, M).
        iteration_s: Shorter requests are no stops. Parts of it are added to the times that are
            judged, since laws of messages of less than that do not matter.
        error: Chance that one is returned although none has stopped, times 3.
    """
    servers = len(times)
    known = ~np.isnan(times) & (rows_of >= 0)
    groups = (rows_of * servers + np.arange(servers)[:, None, None])[known]
    long = longest + iteration_s
    if servers > 1:  # what slows all servers at once is no stop of a server
        others = np.stack([np.delete(long, k, axis=1).max(axis=1) for k in range(servers)], axis=1)
        long = np.where(long >= LEAST_PAUSE * others, long, -np.inf)
    order = np.argsort(np.nan_to_num(long, nan=-np.inf), axis=None)[::-1][:_MOST_STOPS]
    order = order[long.ravel()[order] >= LEAST_PAUSE * iteration_s]
    of_each = error / 3 / len(_ADDED)
    # Times are differences of what several processes noted, so short ones can be below zero.
    judged = np.maximum(times[known], 0.0)
    each = (sudden(judged + part * iteration_s, groups, order.tolist(), of_each) for part in _ADDED)
    return [divmod(place, servers) for place in max(each, key=len)]


def _lost(
    tables: Tables, requests: Requests, rows: _Rows, handling: _Table, under_way: _Table
) -> tuple[Floats, Floats]:
    """Return the seconds that each server costs by handling and under way, shapes (M,)."""
    longer = np.divide(
        handling.slow.excess,
        handling.seconds,
        out=np.zeros_like(handling.slow.excess),
        where=handling.seconds > 0,
    )
    if not tables.barrier:
        last = (tables.shard[:, :, None] == np.arange(tables.servers)) & (rows.of >= 0)[:, :, None]
        work = requests.handling + np.nan_to_num(requests.answering)
        of_work = np.nan_to_num(work.transpose(1, 2, 0)) * longer[rows.of] * last
        usual = (under_way.seconds - under_way.slow.excess)[rows.of]
        of_way = np.nan_to_num(requests.under_way.transpose(1, 2, 0) - usual)
        of_way = np.where(of_way > under_way.slow.excess[rows.of] / 2, of_way, 0.0)
        of_way *= (under_way.slow.excess[rows.of] > 0) & last
        both = of_work.sum(axis=(0, 1)), of_way.sum(axis=(0, 1))
        scale = 1 / tables.workers
    else:
        none = np.zeros_like(longer)
        actual, worked, usual = (
            answered(tables.computed, requests, ratio, under_way.seconds - excess)
            for ratio, excess in (
                (none, none),
                (longer, none),
                (longer, under_way.slow.excess),
            )
        )
        known = np.asarray(~np.isnan(actual).any(axis=1))
        excess = np.where(known[:, None], actual - usual, 0.0)
        lost = shared(actual[known], excess[known])
        of_work = np.divide(
            (actual - worked)[known], excess[known], out=np.zeros_like(lost), where=lost > 0
        )
        both = (lost * of_work).sum(axis=0), (lost * (1 - of_work)).sum(axis=0)
        # Of long runs some iterations are left out.
        scale = len(known) / max(int(known.sum()), 1)
    return scale * both[0], scale * both[1]


def answered(computed: Floats, requests: Requests, ratio: Floats, way: Floats) -> Floats:
    """Return when each server's last answer of an iteration was there, shape (T, M), in s.

    Args:
        computed: When each worker's gradient was ready, shape (T, N).
        ratio: Share of the server's work that is left out, shape (T, M).
        way: How long a request and its answer were under way, together, shape (T, M).
    """
    order = np.argsort(computed, axis=1)
    came = np.take_along_axis(computed, order, axis=1)
    found = np.full(ratio.shape, np.nan)
    for server in range(ratio.shape[1]):
        left = 1 - ratio[:, server]
        work = np.take_along_axis(requests.handling[server], order, axis=1)
        work = np.where(np.isnan(work), 0.0, work)
        free = np.full(len(computed), -np.inf)
        for place in range(computed.shape[1]):
            begun = np.fmax(free, came[:, place] + way[:, server] / 2)
            free = np.where(np.isnan(begun), free, begun + work[:, place] * left)
        answers = np.nan_to_num(requests.answering[server]).sum(axis=1) * left
        found[:, server] = free + answers + way[:, server] / 2
    return np.where(np.isfinite(found), found, np.nan)
