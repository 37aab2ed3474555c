"""The end of a run: the workers finish or are stopped, the servers hand in what they have."""

from __future__ import annotations

from outpace.real.coordinator.roles import RunState
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.snapshots import Snapshots
from outpace.real.net.messages import StopRun
from outpace.real.node.member import COORDINATOR
from outpace.support.units import Time


class Ending:
    """Stops the processes of a run, and waits until they have finished.

    Args:
        checkpoints: those of the run; None: none are taken.
    """

    def __init__(
        self, run: RunState, snapshots: Snapshots, checkpoints: Checkpoints | None
    ) -> None:
        self._run, self._kernel, self._listener = run, run.kernel, run.listener
        self._servers, self._workers = run.roles.servers, run.roles.workers
        self._announced, self._snapshots, self._checkpoints = run.announced, snapshots, checkpoints

    def stop(self, reason: str) -> None:
        """Tell the workers to stop; from now on waiting for them has a limit."""
        run = self._run
        if run.stop_reason is None:
            run.stop_reason = reason
            if self._checkpoints is not None:
                self._checkpoints.stop()
            stop = StopRun(reason, run.early)
            self._announced.add(COORDINATOR, stop)
            for name in self._workers:
                if name not in run.roles.finished:
                    self._listener.send(name, stop)

    async def finish(
        self, names: list[str], limit_s: float | None, *, or_left: bool = False
    ) -> None:
        """Wait until these have finished; the limit counts from when the run is to end.

        limit_s: None: no limit, apart from processes that are lost.
        or_left: workers that take no more part in the training need not have finished.
        """
        since: Time | None = None
        left = self._run.roles.left if or_left else set()
        while missing := [name for name in self._run.awaited(names) if name not in left]:
            if since is None and self._run.stop_reason is not None:
                since = self._kernel.now
            await self._announced.next(limit_s, since, "finish", missing)

    async def hand_in(self, limit_s: float) -> None:
        """Complete or give up the open checkpoint, and wait for the servers' parameters."""
        if self._checkpoints is not None:
            self._checkpoints.end()
        self._run.stop_reason = self._run.stop_reason or "the workers have finished"
        self._snapshots.ask_for_last()
        since = self._kernel.now
        while self._servers and self._snapshots.final is None:
            if self._run.awaited(self._servers) != self._servers:
                break  # one of them cannot hand in anything
            await self._announced.next(limit_s, since, "hand in its parameters", self._servers)

    async def end_servers(self, limit_s: float) -> None:
        """End the servers, and wait for the rest of their trace."""
        self._run.stop_reason = self._run.stop_reason or "the workers have finished"
        for name in self._servers:
            self._listener.send(name, StopRun("the run is over"))
        await self.finish(self._servers, limit_s)
