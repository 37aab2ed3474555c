"""Compares the servers of a run, and their links to all workers.

Two times of the requests to a server are compared with those to the other servers: how long the
server needed to handle and to answer a request, and how long request and answer were under way. Of
the latter the shortest among the workers counts, since it belongs to the server: no other request
was before it, and its worker's link is not slow. So two causes are told apart:

- a server that needs longer for its requests: `server`;
- a server whose messages are longer under way: its link.

Where workers wait for each other, the last answer of an iteration counts: when it was there is
computed with what the server needed, and without what it needed longer. Elsewhere a request costs
what it needed longer itself, if its answer was the last of its worker's iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from outpace.predict.slow import Slow, SlowPeriod, slow_units
from outpace.report.explaining.charging import Floats, Ints, answered, shared
from outpace.report.explaining.explanation import Kind
from outpace.report.explaining.tables import Requests

LEAST_FACTOR: Final = 1.5  # of a server or link below which it is not named
_IGNORED: Final = 0.02  # of an iteration; times that are much shorter have no cost


class Found(NamedTuple):
    """A worker, server or link that is slower than the others.

    Args:
        worker, server: As of a `Cause`.
        periods: Of a server with the factors of its own times.
        delay: Seconds that it delayed each worker, shape (T, N).
        lost_s: Seconds by which the run was longer because of it.
    """

    kind: Kind
    worker: int | None
    server: int | None
    periods: Sequence[SlowPeriod]
    delay: Floats
    lost_s: float = 0.0


def slow_servers(
    sent: Floats, requests: Requests, iteration_s: float, last: Ints | None
) -> list[Found]:
    """Return the slow servers and the slow links of servers.

    Args:
        sent: When each worker sent its requests, in s, shape (T, N).
        iteration_s: Length of an iteration.
        last: The server that answered last, shape (T, N); None: workers wait for each other.
    """
    if requests.handling is None:
        return []
    each_work = requests.handling + requests.answering
    work, way = _by_server(each_work, np.nanmean), _by_server(requests.under_way, np.nanmin)
    ignored_s = _IGNORED * iteration_s
    by_work, by_way = (slow_units(times + ignored_s, LEAST_FACTOR) for times in (work, way))
    if not by_work.periods and not by_way.periods:
        return []
    share = np.divide(by_work.excess, work, out=np.zeros_like(work), where=by_work.excess > 0)
    longer_way = np.minimum(by_way.excess, np.nan_to_num(way))
    if last is None:
        usual = (1 - share.T)[:, :, None]
        actual = answered(sent, requests.handling, requests.answering, way)
        without = answered(
            sent, requests.handling * usual, requests.answering * usual, way - longer_way
        )
        lost = shared(actual, np.nan_to_num(actual - without))
        known = int((~np.isnan(actual)).all(axis=1).sum())
        lost *= len(actual) / max(known, 1)  # of long runs some iterations are left out
        delays = [np.repeat(column[:, None], sent.shape[1], axis=1) for column in lost.T]
    else:
        longer = np.nan_to_num(each_work) * share.T[:, :, None] + longer_way.T[:, :, None]
        delays = [np.where(last == server, each, 0.0) for server, each in enumerate(longer)]
    found = []
    for server, delay in enumerate(delays):
        kind: Kind = "server" if by_work.of(server) else "link"
        times, slow = (work, by_work) if kind == "server" else (way, by_way)
        if periods := _with_own_factors(slow, times, server):
            lost_s = float(delay.mean(axis=1).sum())
            found.append(Found(kind, None, server, periods, delay, lost_s))
    return found


def _by_server(seconds: Floats, reduce: Callable[..., Floats]) -> Floats:
    """Return the mean or least time of the requests of an iteration, shape (T, M).

    NaN with fewer than two requests, if there are several workers.
    """
    enough = (~np.isnan(seconds)).sum(axis=2) >= min(2, seconds.shape[2])
    found = np.full(seconds.shape[:2], np.nan)
    found[enough] = reduce(seconds[enough], axis=1)
    return np.asarray(np.maximum(found, 0.0).T)


def _with_own_factors(slow: Slow, times: Floats, server: int) -> list[SlowPeriod]:
    """Return the slow periods of a server with the factors of its times, shape (T, M)."""
    found = []
    for period in slow.of(server):
        whole_s = float(np.nansum(times[period.rows, server]))
        usual_s = whole_s - float(slow.excess[period.rows, server].sum())
        factor = whole_s / max(usual_s, 1e-6 * whole_s, 1e-9)
        found.append(replace(period, factor=factor))
    return found
