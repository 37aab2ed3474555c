"""Notes which processes a run lost, and when it was resumed, in every runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outpace.record.event_log import EventLog, Level
from outpace.record.totals import Recovery
from outpace.record.trace import LOSS, NONE, RESTART, TraceRows
from outpace.support.units import Time, seconds
from outpace.sync.membership.events import Loss, Removed, Start
from outpace.sync.messages import worker_name


class Interruptions:
    """Notes losses and restarts in the trace, the event log and the counts of a run.

    The rows of an attempt that is over stay in the trace.

    Args:
        recovery: the counts, which are added to.

    Attributes:
        generations: of processes that were started again, by name.
    """

    def __init__(self, trace: TraceRows, events: EventLog, recovery: Recovery) -> None:
        self._trace, self._events, self._recovery = trace, events, recovery
        self.generations: dict[str, int] = {}
        self._began: Time = 0  # when all processes began the last time
        self._rows: list[tuple[int, ...]] = []
        self._lost: dict[int, Time] = {}  # workers that another process may replace: when lost
        self._first: dict[int, int] = {}  # by worker: the iteration of its new process
        # Rows of a loss for which all processes begin again, without their ends.
        self._begins_again: list[tuple[int, ...]] = []

    def note(self, event: str, name: str, level: Level = "info", **fields: Any) -> None:
        """Add an event of the present process of this name to the log."""
        generation = self.generations.get(name, 0)
        self._events.add(event, level, role=name, generation=generation, **fields)

    def lost(self, loss: Loss, worker: int, at: Time) -> None:
        """A worker is lost, and the others continue."""
        self._lost[worker] = at
        self.note("lost", loss.name, "warning", why=str(loss))

    def removed(self, order: Removed, now: Time) -> None:
        """The run continues without this worker."""
        self._recovery.without.append(order.worker)
        self._recovery.updates_lost += order.lost
        at = self._lost.pop(order.worker, now)
        self._add(LOSS, order.worker, NONE, NONE, at, at)

    def restarted(self, order: Start) -> None:
        """Another process is started for this worker."""
        self._recovery.restarts += 1
        self._recovery.updates_lost += order.lost
        self._first[order.worker] = order.first
        name = worker_name(order.worker)
        self.generations[name] = order.generation
        self.note("restarted", name, first=order.first, updates_lost=order.lost)

    def not_restarted(self, worker: int) -> None:
        """There was no room for the other process of this worker: it never ran."""
        self._recovery.restarts -= 1
        self.note("not-restarted", worker_name(worker))

    def began(self, worker: int, now: Time) -> None:
        """The new process of this worker begins with its work."""
        lost = self._lost.pop(worker, now)
        self._add(RESTART, worker, NONE, self._first.pop(worker, 0), lost, now)

    def scaled(self, before: tuple[int, int], after: tuple[int, int], took_s: float) -> None:
        """All processes have begun again with other numbers of workers and servers, and train."""
        self._recovery.scalings.append(after)
        self._events.add(
            "scaled",
            workers=after[0],
            servers=after[1],
            workers_before=before[0],
            servers_before=before[1],
            took_s=took_s,
        )

    def group_lost(
        self,
        why: str,
        servers: Sequence[int],
        workers: Sequence[int],
        at: Time,
        *,
        number: int,
        now: Time,
        first: int,
        updates_lost: int,
        anew: int = 0,
    ) -> None:
        """All processes begin again at a checkpoint, to which the trace was put back.

        Args:
            servers, workers: the lost ones.
            at: when they were lost.
            number, now: of the checkpoint.
            first: the first iteration of a worker after it.
            updates_lost: the count at the checkpoint, with those that are lost by going back to it.
            anew: scripts that begin anew, because they keep nothing.
        """
        self._lost.clear()
        self._first.clear()
        for row in self._rows:
            if row[5] > now:  # it ended after the checkpoint
                self._trace.row(*row)
        since = max(now, self._began)  # nothing was done between the two
        rest = NONE, max(0, at - since), number, NONE, NONE, anew or NONE
        lost = [(NONE, server) for server in servers] + [(worker, NONE) for worker in workers]
        self._begins_again = [(*one, first, at, *rest) for one in lost]
        self._recovery.restarts += 1
        self._recovery.updates_lost = updates_lost
        self._events.add(
            "group-restart",
            "warning",
            cause=why,
            number=number,
            time_s=seconds(now),
            restarts=self._recovery.restarts,
            updates_lost=updates_lost,
        )

    def began_again(self, now: Time) -> None:
        """The training begins, perhaps again after a loss for which all processes begin again."""
        self._began = now
        for worker, server, first, lost_at, *rest in self._begins_again:
            self._add(RESTART, worker, server, first, lost_at, max(now, lost_at), *rest)
        self._begins_again.clear()

    def _add(self, *row: int) -> None:
        self._rows.append(row)
        self._trace.row(*row)
