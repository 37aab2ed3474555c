"""Requests for a server's parameters and its optimizer's state: of workers, and the coordinator."""

from __future__ import annotations

from typing import TypeAlias

from outpace.blocks.block import Block
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Fetch, OptimizerState, TakeSnapshot
from outpace.real.net.transport import Caller, Listener
from outpace.real.node.serving.part import ServerPart
from outpace.record.recorder import Recorder
from outpace.support.units import Time

Request: TypeAlias = Fetch | OptimizerState


class Requests:
    """Answers requests: now, when there is a shard or a version, or when all workers have left.

    Attributes:
        all_left_at: when all workers had left; None: they have not.
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
        self._want_initial: set[str] = set()  # workers that wait for the initial parameters
        self._want_final: set[str] = set()  # workers that wait until all have left
        self._snapshots: dict[int, int] = {}  # version that is not there yet -> request for it

    # -- of workers ----------------------------------------------------------------------

    def take(self, peer: str, request: Request, block: Block | None) -> bool:
        """Answer a request, or keep it; False if the worker must not send it now."""
        part = self._part
        if isinstance(request, OptimizerState):
            assert block is not None
            return part.load_state(request.entries, block)
        if request.what == "state":
            if not part.has_begun:
                return False
            self._listener.send(peer, *part.optimizer_state())
        elif request.what == "final" and not part.all_left:
            self._want_final.add(peer)
        elif part.has_begun:
            self._listener.send(peer, *part.snapshot())
        else:
            self._want_initial.add(peer)
        return True

    def has_begun(self) -> None:
        """There is the shard: answer the workers that wait for it."""
        for peer in self._want_initial:
            self._listener.send(peer, *self._part.snapshot())

    def look(self) -> None:
        """Answer the workers that wait until all have left, if all have."""
        if self._part.all_left:
            self.all_left_at = self.all_left_at or self._clock.now
            for peer in self._want_final:
                self._listener.send(peer, *self._part.snapshot())
            self._want_final.clear()

    def forget(self, peer: str) -> None:
        """Do not answer the process of a worker that another one replaces."""
        self._want_initial.discard(peer)
        self._want_final.discard(peer)

    # -- of the coordinator --------------------------------------------------------------

    def take_snapshot(self, order: TakeSnapshot) -> None:
        """Send a snapshot as soon as the shard has the version that is asked for."""
        if self._part.shard.version >= order.version:
            self._send_snapshot(order.request)
        else:
            self._snapshots[order.version] = order.request

    def updated(self, version: int) -> None:
        """The shard has this version."""
        if version in self._snapshots:
            self._send_snapshot(self._snapshots.pop(version))

    def _send_snapshot(self, request: int) -> None:
        applied = self._recorder.totals.applied
        self._coordinator.send(*self._part.snapshot(request, applied))
