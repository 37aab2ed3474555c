"""Records in the trace of a run which processes it lost, and when it went on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from outpace.record.trace import LOSS, NONE, RESTART, TraceRows
from outpace.support.units import Time


class Stored(Protocol):
    """A checkpoint from which a run goes on.

    number: of the checkpoint. now: its time (ns). first: the first iteration of each worker.
    """

    @property
    def number(self) -> int: ...

    @property
    def now(self) -> Time: ...

    @property
    def first(self) -> Sequence[int]: ...


class _Group(NamedTuple):
    """A loss after which all processes begin again.

    at: when. since: what was done from this time on is repeated. anew: scripts that begin anew.
    """

    servers: Sequence[int]
    workers: Sequence[int]
    at: Time
    number: int  # of the checkpoint
    since: Time
    first: int  # iteration
    anew: int


class Interruptions:
    """The rows about losses and restarts. Those of an attempt that is over stay in the trace."""

    def __init__(self, trace: TraceRows) -> None:
        self._trace = trace
        self._began: Time = 0  # when all processes began the last time
        self._rows: list[tuple[int, ...]] = []
        self._lost: dict[int, Time] = {}  # workers that another process may replace: when lost
        self._first: dict[int, int] = {}  # by worker: the iteration of its new process
        self._group: _Group | None = None

    def lost(self, worker: int, now: Time) -> None:
        """A worker is lost, and the run goes on."""
        self._lost[worker] = now

    def removed(self, worker: int, now: Time) -> None:
        """The run goes on without this worker."""
        at = self._lost.pop(worker, now)
        self._add(LOSS, worker, NONE, NONE, at, at)

    def restarted(self, worker: int, first: int) -> None:
        """Another process is started for this worker."""
        self._first[worker] = first

    def began(self, worker: int, now: Time) -> None:
        """The new process of this worker begins with its work."""
        lost = self._lost.pop(worker, now)
        self._add(RESTART, worker, NONE, self._first.pop(worker, 0), lost, now)

    def group_lost(
        self,
        servers: Sequence[int],
        workers: Sequence[int],
        now: Time,
        point: Stored,
        anew: int = 0,
    ) -> None:
        """All processes begin again at a checkpoint, to which the trace was put back.

        servers, workers: the lost ones. anew: scripts that begin anew, because they keep nothing.
        """
        self._lost.clear()
        self._first.clear()
        for row in self._rows:
            if row[5] > point.now:  # it ended after the checkpoint
                self._trace.row(*row)
        since = max(point.now, self._began)  # nothing was done between the two
        self._group = _Group(servers, workers, now, point.number, since, min(point.first), anew)

    def began_again(self, now: Time) -> None:
        """The training begins, or goes on after a loss for which all processes begin again."""
        loss, self._group, self._began = self._group, None, now
        if loss is not None:
            lost = [(NONE, server) for server in loss.servers]
            lost += [(worker, NONE) for worker in loss.workers]
            for worker, server in lost:
                repeated = max(0, loss.at - loss.since)
                rest = NONE, repeated, loss.number, NONE, NONE, loss.anew or NONE
                self._add(RESTART, worker, server, loss.first, loss.at, max(now, loss.at), *rest)

    def _add(self, *row: int) -> None:
        self._rows.append(row)
        self._trace.row(*row)
