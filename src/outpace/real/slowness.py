"""Names slow workers, servers and links while a real run is running, for the picture.

The last iterations are compared as `outpace.report.explaining` compares those of a whole run. It
costs some 100 microseconds per iteration of all workers, in the coordinator's process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.config.experiment import Experiment
from outpace.engine.servers import is_exact
from outpace.predict.slow import SlowPeriod, slow_units
from outpace.record import tables, timing, trace
from outpace.report.explaining.charging import shared
from outpace.report.explaining.servers import slow_servers
from outpace.report.explaining.tables import Requests

Floats = NDArray[np.float64]
_WINDOW: Final = 128  # iterations that are compared
_SELDOM: Final = 40  # most iterations between two comparisons
_WAITING: Final = 64  # iterations that wait for their last times
_MOST: Final = 3  # workers that are named
_MOST_SERVERS: Final = 2
_LEAST_SHARE: Final = 0.02  # of an iteration, that a server or link must cost
_EVENT, _WORKER, _ITERATION, _STARTED, _COMPUTED, _WOULD_END = (
    trace.SCHEMA.names.index(name)
    for name in ("event", "worker", "iteration", "start_ns", "computed_ns", "bound")
)
_SERVER, _WORKER_OF_REQUEST = (timing.SCHEMA.names.index(name) for name in ("server", "worker"))


class _Window:
    """Tables of times of the last iterations. One is complete when none of its times is NaN.

    With more than _WAITING iterations that wait, the oldest is taken incomplete.

    Args:
        shape: Of the times of an iteration.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.seen = 0
        self.iterations: deque[int] = deque(maxlen=_WINDOW)
        self._tables: deque[Floats] = deque(maxlen=_WINDOW)
        self._shape = shape
        self._waiting: dict[int, Floats] = {}
        self._next = 1  # number of iterations at which they are compared again
        self._since: dict[str, int] = {}

    def put(self, iteration: int, place: tuple[int | slice, ...], times: Floats) -> None:
        if iteration not in self._waiting:
            self._waiting[iteration] = np.full(self._shape, np.nan)
        self._waiting[iteration][place] = times

    def is_due(self) -> bool:
        """Take the complete iterations, and return whether they should be compared again."""
        for iteration in sorted(self._waiting):
            table = self._waiting[iteration]
            if len(self._waiting) > _WAITING or not np.isnan(table).any():
                del self._waiting[iteration]
                self.iterations.append(iteration)
                self._tables.append(table)
                self.seen += 1
        if self.seen < self._next:
            return False
        self._next = self.seen + max(1, min(self.seen // 8, _SELDOM))
        return True

    def tables(self) -> Floats:
        return np.array(self._tables)

    def words(self, slow: dict[str, tuple[SlowPeriod, Floats | None]]) -> Iterator[str]:
        """Yield what is slow, as `worker 1: 1.3 times as slow as the others, costs about 2 s`.

        Args:
            slow: By name, a period and what it costs in each iteration, in s, shape (T,); None: it
                is not known.
        """
        before, self._since = self._since, {}
        for name, (period, lost) in slow.items():
            text = f"{name}: {period.factor:.3g} times as slow as the others"
            first = self.iterations[period.first]
            if period.last is not None:
                last = self.iterations[period.last]
                yield f"{text} in iteration" + (
                    f" {first}" if first == last else f"s {first} to {last}"
                )
                continue
            if period.first < _SELDOM:  # it may have begun before the window
                first = before.get(name, first)
            self._since[name] = first
            text += f" since iteration {first}" if first else ""
            if lost is not None:
                cost_s = float(lost[period.rows].mean()) * (self.iterations[-1] + 1 - first)
                text += f", costs about {cost_s:.2g} s"
            yield text


class SlowWorkers:
    """Takes the rows of the trace as they come, and says which workers are slow."""

    def __init__(self, experiment: Experiment) -> None:
        self._workers, self._is_lockstep = experiment.workers, is_exact(experiment)
        self._window = _Window((self._workers,))
        self._line = ""

    def take(self, name: str, table: tables.Table) -> None:
        """Take rows of the table of this name, if it is the trace."""
        if name != "trace":
            return
        # A worker may have written anything into its rows.
        fits = (table[:, _WORKER] < self._workers) & (table[:, _ITERATION] >= 0)
        mine = table[(table[:, _EVENT] == trace.ITERATION) & (table[:, _WORKER] >= 0) & fits]
        is_known = mine[:, _WOULD_END] != tables.NONE
        ends = np.where(is_known, mine[:, _WOULD_END], mine[:, _COMPUTED])
        seconds = (ends - mine[:, _STARTED]) * 1e-9
        for worker, iteration, time_s in zip(
            mine[:, _WORKER].tolist(), mine[:, _ITERATION].tolist(), seconds, strict=True
        ):
            self._window.put(iteration, (worker,), time_s)

    def line(self) -> str:
        """Return the words about slow workers; empty if none is slow."""
        if self._window.is_due():
            seconds = self._window.tables()
            slow = slow_units(seconds)
            lost = shared(seconds, slow.excess) if self._is_lockstep else None
            recent = sorted(slow.periods, key=lambda each: (each.last is not None, -each.first))
            named = {
                f"worker {each.unit}": (each, None if lost is None else lost[:, each.unit])
                for each in recent[:_MOST]
            }
            self._line = "  ·  ".join(self._window.words(named))
        return self._line


class SlowServers:
    """Takes the times of requests as they come, and says which servers or links are slow.

    A row is an iteration, also where workers do not wait for each other. Nothing is named with a
    single server, since there is none to compare it with.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._shape = experiment.servers_in_run, experiment.workers
        self._is_lockstep = self._shape[0] > 0 and is_exact(experiment)
        self._window = _Window((4, *self._shape))  # sent, under way, handling, answering
        self._timing = timing.Timing(self._put)
        self._line = ""

    def take(self, name: str, rows: tables.Table) -> None:
        """Take rows of the table of this name, if it is that of the times of messages."""
        if name == "trace":
            return
        # A process may have written anything into its rows.
        servers, workers = self._shape
        fits = (rows[:, _SERVER] < servers) & (rows[:, _WORKER_OF_REQUEST] < workers)
        self._timing.add(rows[fits])

    def line(self) -> str:
        """Return the words about slow servers and links; empty if none is slow."""
        if self._shape[0] < 2:
            return ""
        self._timing.hand_on()
        if self._window.is_due() and self._window.seen > 1:
            sent, *times = self._window.tables().transpose(1, 2, 0, 3)
            begun = np.fmin.reduce(sent, axis=0)
            iteration_s = float(np.nanmedian(np.diff(np.nanmedian(begun, axis=1))))
            last = None if self._is_lockstep else np.full(begun.shape, -1)
            named: dict[str, tuple[SlowPeriod, Floats | None]] = {}
            for each in slow_servers(begun, Requests(*times), iteration_s, last):
                name = f"{'link of ' if each.kind == 'link' else ''}server {each.server}"
                lost = each.delay.mean(axis=1) if self._is_lockstep else None
                latest = each.periods[-1]
                if lost is None or lost[latest.rows].mean() >= _LEAST_SHARE * iteration_s:
                    named[name] = latest, lost
            self._line = "  ·  ".join(list(self._window.words(named))[:_MOST_SERVERS])
        return self._line

    def _put(self, rows: tables.Table) -> None:
        """Take rows of `outpace.record.timing`; those without both halves are passed over."""
        columns = dict(zip(timing.SCHEMA.names, rows.T, strict=True))

        def ns(name: str) -> Floats:
            column = columns[f"{name}_ns"]
            return np.where(column == tables.NONE, np.nan, column)

        what, server, worker, iteration = (
            columns[name] for name in ("what", "server", "worker", "iteration")
        )
        sent, answering = ns("sent"), np.nan_to_num(ns("answered") - ns("answer_begun"))
        under_way = ns("arrived") - sent - (ns("answered") - ns("received"))
        times = np.stack([sent, under_way, ns("done") - ns("begun"), answering]) * 1e-9
        inside = ((what == timing.PUSH) | (what == timing.PULL)) & ~np.isnan(times).any(axis=0)
        for number, most in ((server, self._shape[0]), (worker, self._shape[1])):
            inside &= (number >= 0) & (number < most) & (iteration >= 0)
        for place in np.flatnonzero(inside).tolist():
            at = slice(None), int(server[place]), int(worker[place])
            self._window.put(int(iteration[place]), at, times[:, place])
