"""The end of a run: the workers finish or are stopped, the servers hand in what they have."""

from __future__ import annotations

from outpace.kernel import Kernel
from outpace.real.coordinator.recovery.losses import Losses
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.snapshots import Snapshots
from outpace.real.coordinator.waiting import Announcements
from outpace.real.net.messages import StopRun
from outpace.real.net.transport import Listener
from outpace.real.node.member import COORDINATOR
from outpace.support.units import Time


class Ending:
    """Stops the processes of a run, and waits until they have finished.

    Args:
        servers, workers: their names.
        checkpoints: those of the run; None: none are taken.

    Attributes:
        reason: why the workers must stop; None: they go on.
    """

    def __init__(
        self,
        servers: list[str],
        workers: list[str],
        kernel: Kernel,
        listener: Listener,
        losses: Losses,
        reports: Reports,
        announced: Announcements,
        snapshots: Snapshots,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.reason: str | None = None
        self._servers, self._workers = servers, workers
        self._kernel, self._listener = kernel, listener
        self._losses, self._reports, self._announced = losses, reports, announced
        self._snapshots, self._checkpoints = snapshots, checkpoints

    @property
    def order(self) -> StopRun | None:
        """The order to stop, once it was given."""
        return None if self.reason is None else StopRun(self.reason, self._losses.early)

    def stop(self, reason: str) -> None:
        """Tell the workers to stop; from now on waiting for them has a limit."""
        if self.reason is None:
            self.reason = reason
            if self._checkpoints is not None:
                self._checkpoints.stop()
            stop = StopRun(reason, self._losses.early)
            self._announced.add(COORDINATOR, stop)
            for name in self._workers:
                if name not in self._losses.finished:
                    self._listener.send(name, stop)

    async def finish(
        self, names: list[str], limit_s: float | None, *, or_left: bool = False
    ) -> None:
        """Wait until these have finished; the limit counts from when the run is to end.

        limit_s: None: no limit, apart from processes that are lost.
        or_left: workers that take no more part in the training need not have finished.
        """
        since: Time | None = None
        left = self._reports.left if or_left else set()
        while missing := [name for name in self._losses.awaited(names) if name not in left]:
            if since is None and self.reason is not None:
                since = self._kernel.now
            await self._announced.next(limit_s, since, "finish", missing)

    async def hand_in(self, limit_s: float) -> None:
        """Complete or give up the open checkpoint, and wait for the servers' parameters."""
        if self._checkpoints is not None:
            self._checkpoints.end()
        self.reason = self.reason or "the workers have finished"
        self._snapshots.ask_for_last()
        since = self._kernel.now
        while self._servers and self._snapshots.final is None:
            if self._losses.awaited(self._servers) != self._servers:
                break  # one of them cannot hand in anything
            await self._announced.next(limit_s, since, "hand in its parameters", self._servers)

    async def end_servers(self, limit_s: float) -> None:
        """End the servers, and wait for the rest of their trace."""
        self.reason = self.reason or "the workers have finished"
        for name in self._servers:
            self._listener.send(name, StopRun("the run is over"))
        await self.finish(self._servers, limit_s)
