"""Is told by the coordinator what happens to a run: for logs, counts and the status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outpace.real.net.messages import JoinRun, ProcessDone
from outpace.real.net.report_messages import ProcessFailed, ScriptLog
from outpace.record.trace import Table
from outpace.sync.membership import Loss, Removed, Start

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator

Told = JoinRun | ProcessDone | ProcessFailed


class RunObserver:
    """Is told what happens to a run. Here all of it is ignored: a subclass notes what it needs."""

    _coordinator: Coordinator  # of the attempt that it is told about

    def attach(self, coordinator: Coordinator) -> None:
        """Be told of this attempt from now on."""
        self._coordinator = coordinator
        coordinator.observers.append(self)

    def told(self, name: str, told: Told) -> None:
        """A process has joined, is done, or has failed."""

    def started(self) -> None:
        """The time of the run has begun, and the processes are told to train."""

    def logged(self, worker: int, message: ScriptLog) -> None:
        """The script of a worker has logged values."""

    def traced(self, rows: Table) -> None:
        """A process has sent rows of its trace."""

    def timed(self, rows: Table) -> None:
        """A process has sent rows of `outpace.record.timing`."""

    def survived(self, losses: Sequence[Loss]) -> None:
        """These processes are lost, and the run goes on."""

    def recovered(self, recovered: Start | Removed) -> None:
        """A worker begins again, or the run goes on without it."""

    def not_restarted(self, worker: int) -> None:
        """There was no room for a process that a worker was to begin again with: it never ran."""

    def began(self, worker: int) -> None:
        """The new process of a worker begins with its work."""


class AtStart(RunObserver):
    """Calls a function when the training starts."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def started(self) -> None:
        self._action()
