"""Requests for a server's parameters and its optimizer's state: of workers, and the coordinator."""

from __future__ import annotations

from typing import TypeAlias

from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Fetch, OptimizerState
from outpace.real.net.transport import Caller, Listener
from outpace.real.node.serving.part import ServerPart
from outpace.real.node.versions import AwaitedVersions
from outpace.record.recorder import Recorder
from outpace.support.units import Time

Request: TypeAlias = Fetch | OptimizerState


class Requests:
    """Answers requests: now, when there is a shard or a version, or when all workers have left.

    Attributes:
        all_left_at: when all workers had left; None: they have not.
        versions: for which the coordinator waits.
    """

    def __init__(
        self,
        part: ServerPart,
        listener: Listener,
        coordinator: Caller,
        recorder: Recorder,
        clock: RealClock,
    ) -> None:
        self.all_left_at: Time | None = None
        self._part, self._listener, self._coordinator = part, listener, coordinator
        self._recorder, self._clock = recorder, clock
        self._waiting: dict[tuple[str, str], None] = {}  # worker, and what it fetches
        self.versions = AwaitedVersions(coordinator.send, self._progress, self._send_snapshot)

    # -- of workers ----------------------------------------------------------------------

    def take(self, peer: str, request: Request) -> bool:
        """Answer a request, or keep it; False if the worker must not send it now."""
        part = self._part
        if isinstance(request, OptimizerState):
            return part.load_state(request)
        if request.what == "state" and not part.has_begun:
            return False
        self._waiting[peer, request.what] = None
        self.look()
        return True

    def look(self) -> None:
        """Answer the requests for what is there now."""
        part, waiting, self._waiting = self._part, self._waiting, {}
        all_left = part.has_begun and part.shard.live == 0
        if all_left and self.all_left_at is None:
            self.all_left_at = self._clock.now
        for peer, what in waiting:
            if what == "state":
                self._listener.send(peer, part.optimizer_state())
            elif all_left if what == "final" else part.has_begun:
                self._listener.send(peer, part.snapshot())
            else:
                self._waiting[peer, what] = None

    def forget(self, peer: str) -> None:
        """Do not answer the process of a worker that another one replaces."""
        self._waiting = {each: None for each in self._waiting if each[0] != peer}

    # -- of the coordinator --------------------------------------------------------------

    def _progress(self) -> tuple[int, int]:
        return self._part.shard.version, self._part.shard.clock

    def _send_snapshot(self, request: int) -> None:
        applied = self._recorder.totals.applied
        self._coordinator.send(self._part.snapshot(request, applied))
