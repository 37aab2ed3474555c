"""Names slow servers of a real run, and slow links to them, while it is running.

As `outpace.report.explaining.servers`, which compares the servers after a run, but row by row: a
row is an iteration, also where workers do not wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from outpace.config.experiment import Experiment
from outpace.engine.servers import is_exact
from outpace.predict.slow import FAMILY_ERROR, Detector, SlowPeriod
from outpace.record.timing import PULL, PUSH, SCHEMA, Timing
from outpace.record.trace import Table
from outpace.report.explaining.charging import Floats, shared
from outpace.report.explaining.messages import Requests
from outpace.report.explaining.servers import LEAST_FACTOR, LEAST_SHARE, answered

_MOST_WAITING: Final = 64  # iterations whose requests are not all known
_KEPT: Final = 256  # iterations whose lengths are known
_MOST: Final = 2  # servers that are named
_SERVER: Final = SCHEMA.names.index("server")
_WORKER: Final = SCHEMA.names.index("worker")


class _Row(NamedTuple):
    """The requests of an iteration, in s; NaN where it is unknown.

    Args:
        sent: When each worker sent its requests, in the worker's clock, shape (N,).
        requests: Their durations, shapes (M, 1, N).
    """

    sent: Floats
    requests: Requests


class SlowServers:
    """Takes the times of requests as they come, and says which servers or links are slow.

    Nothing is named with a single server, since there is none to compare it with.
    """

    def __init__(self, experiment: Experiment) -> None:
        servers = experiment.servers_in_run
        self._workers = experiment.workers
        self._rows = _Rows(servers, self._workers)
        self._timing = Timing(self._rows.take)
        self._is_lockstep = servers > 0 and is_exact(experiment)
        error = FAMILY_ERROR / 2
        self._of_work, self._of_way = (Detector(servers, LEAST_FACTOR, error) for _ in range(2))
        self._seen, self._last_sent = 0, float("nan")
        self._lengths: deque[float] = deque(maxlen=_KEPT)  # of iterations, in s
        # Of the server's work (0) and its link (1), while they were slow, by server, shape (2, M):
        # the times of a request, what they were longer, and what the run has lost, in s.
        self._times, self._excess, self._lost = (np.zeros((2, servers)) for _ in range(3))
        self._slow = np.zeros((2, servers), np.int64)  # number of these iterations

    def take(self, name: str, rows: Table) -> None:
        """Take rows of the table of this name, if it is that of the times of messages."""
        if name == "trace":
            return
        # A process may have written anything into its rows.
        fits = (rows[:, _SERVER] < len(self._slow[0])) & (rows[:, _WORKER] < self._workers)
        self._timing.add(rows[fits])

    def line(self) -> str:
        """Return such as `server 1: 2.1 times as slow as the others`; empty if none is slow."""
        if len(self._lost[0]) < 2:
            return ""
        self._timing.hand_on()
        for iteration, row in self._rows.complete():
            self._judge(iteration, row)
        slow = self._of_work.slow_now
        words = [self._words(period, 0) for period in slow]
        named = {period.unit for period in slow}
        # Requests lie in the socket of a busy server: its link cannot be told then.
        links = [period for period in self._of_way.slow_now if period.unit not in named]
        words += [self._words(period, 1) for period in links]
        return "  ·  ".join([each for each in words if each][:_MOST])

    def _words(self, period: SlowPeriod, which: int) -> str:
        """Return the words about a server (0) or its link (1); empty if its cost is small."""
        place = which, period.unit
        if not self._slow[place]:
            return ""
        usual = self._times[place] - self._excess[place]
        factor = self._times[place] / max(usual, 1e-6 * self._times[place])
        name = f"link of server {period.unit}" if which else f"server {period.unit}"
        text = f"{name}: {factor:.3g} times as slow as the others"
        text += f" since iteration {period.first}" if period.first else ""
        if not self._is_lockstep:
            return text
        each_s = self._lost[place] / self._slow[place]
        if each_s < LEAST_SHARE * self._iteration_s:
            return ""
        return f"{text}, costs about {each_s * (self._seen - period.first):.2g} s"

    @property
    def _iteration_s(self) -> float:
        return float(np.median(self._lengths)) if self._lengths else 0.0

    def _judge(self, iteration: int, row: _Row) -> None:
        sent = float(np.nanmedian(row.sent))
        if sent > self._last_sent:  # False of the first one
            self._lengths.append(sent - self._last_sent)
        self._last_sent = sent
        if not self._lengths:
            return
        self._seen = max(self._seen, iteration + 1)
        requests, ignored_s = row.requests, LEAST_SHARE * self._iteration_s
        each_work = requests.handling + requests.answering
        work = _by_server(each_work, np.nanmean)
        way = _by_server(requests.under_way, np.nanmin)
        for detector, seconds in ((self._of_work, work), (self._of_way, way)):
            detector.step(iteration, seconds + ignored_s)
        self._charge(row, np.stack([work, way]), ignored_s)

    def _charge(self, row: _Row, times: Floats, ignored_s: float) -> None:
        """Add what servers and links that are slow at present have cost in an iteration.

        Args:
            times: Of work and link of each server in the iteration, in s, shape (2, M).
            ignored_s: Was added to them before they were compared.
        """
        excess = np.zeros(times.shape)
        busy = {period.unit for period in self._of_work.slow_now}
        for which, detector in enumerate((self._of_work, self._of_way)):
            for period in detector.slow_now:
                place = which, period.unit
                more_s = (times[place] + ignored_s) * (1 - 1 / period.factor)
                if np.isnan(more_s) or (which and period.unit in busy):
                    continue
                excess[place] = min(max(more_s, 0.0), times[place])
                self._slow[place] += 1
                self._times[place] += times[place]
        self._excess += excess
        if not self._is_lockstep or not excess.any() or np.isnan(times).any():
            return
        (work, way), none = times, np.zeros(times.shape[1])
        longer = np.divide(excess[0], work, out=none.copy(), where=work > 0)
        actual, worked, usual = (
            answered(row.sent[None], row.requests, ratio[None], seconds[None])[0]
            for ratio, seconds in ((none, way), (longer, way), (longer, way - excess[1]))
        )
        lost = shared(actual[None], (actual - usual)[None])[0]
        of_work = np.divide(actual - worked, actual - usual, out=none.copy(), where=lost > 0)
        self._lost += lost * np.stack([of_work, 1 - of_work])


class _Rows:
    """Collects the requests by iteration, until those of all workers to all servers are known.

    With more iterations that wait, the oldest is given out incomplete.
    """

    def __init__(self, servers: int, workers: int) -> None:
        self._shape = servers, workers
        self._waiting: dict[int, Floats] = {}  # sent, under way, handling, answering: (4, M, N)

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows of `outpace.record.timing`; those without both halves are passed over."""

        def ns(name: str) -> Floats:
            column = batch.column(f"{name}_ns").cast(pa.float64())
            return np.asarray(column.to_numpy(zero_copy_only=False))

        def numbers(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.asarray(batch.column(name).fill_null(-1).to_numpy(), np.int64)

        what = batch.column("what").indices.to_numpy()
        server, worker, iteration = (numbers(name) for name in ("server", "worker", "iteration"))
        at_server = ns("answered") - ns("received")
        sent, answering = ns("sent"), np.nan_to_num(ns("answered") - ns("answer_begun"))
        under_way = ns("arrived") - sent - at_server
        times = np.stack([sent, under_way, ns("done") - ns("begun"), answering]) * 1e-9
        inside = ((what == PUSH) | (what == PULL)) & ~np.isnan(times).any(axis=0) & (iteration >= 0)
        for numbers_of, most in ((server, self._shape[0]), (worker, self._shape[1])):
            inside &= (numbers_of >= 0) & (numbers_of < most)
        for place in np.flatnonzero(inside):
            row = self._waiting.get(int(iteration[place]))
            if row is None:
                row = self._waiting[int(iteration[place])] = np.full((4, *self._shape), np.nan)
            row[:, server[place], worker[place]] = times[:, place]

    def complete(self) -> Iterator[tuple[int, _Row]]:
        """Yield the iterations whose requests are all known, in their order.

        An iteration that was given out incomplete comes once more if a late row of it arrives.
        """
        for iteration in sorted(self._waiting):
            table = self._waiting[iteration]
            if len(self._waiting) > _MOST_WAITING or not np.isnan(table).any():
                del self._waiting[iteration]
                sent, under_way, handling, answering = table
                requests = Requests(under_way[:, None], handling[:, None], answering[:, None])
                yield iteration, _Row(np.fmin.reduce(sent), requests)


def _by_server(seconds: Floats, reduce: Callable[..., Floats]) -> Floats:
    """Return the mean, least or longest of each server, shape (M,); NaN if none is known."""
    found = np.full(len(seconds), np.nan)
    known = ~np.isnan(seconds).all(axis=(1, 2))
    found[known] = reduce(seconds[known], axis=(1, 2))
    return found
