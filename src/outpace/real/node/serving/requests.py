"""Requests of workers for a server's parameters, and for the state of its optimizer."""

from __future__ import annotations

from typing import TypeAlias

from outpace.blocks.block import Block
from outpace.real.net.block_frames import head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Fetch, FetchState, OptimizerState
from outpace.real.net.transport import Listener
from outpace.real.node.serving.optimizer import ServerOptimizer
from outpace.real.node.serving.part import ServerPart
from outpace.support.units import Time

Request: TypeAlias = Fetch | FetchState | OptimizerState


class Requests:
    """Answers the requests of workers: now, when there is a shard, or when all workers have left.

    Attributes:
        all_left_at: when all workers had left; None: they have not.
    """

    def __init__(
        self,
        index: int,
        part: ServerPart,
        optimizer: ServerOptimizer,
        listener: Listener,
        clock: RealClock,
    ) -> None:
        self.all_left_at: Time | None = None
        self._index, self._part, self._optimizer = index, part, optimizer
        self._listener, self._clock = listener, clock
        self._want_initial: set[str] = set()  # workers that wait for the initial parameters
        self._want_final: set[str] = set()  # workers that wait until all have left

    def take(self, peer: str, request: Request, block: Block | None) -> bool:
        """Answer a request, or keep it; False if the worker must not send it now."""
        part, optimizer = self._part, self._optimizer
        if isinstance(request, OptimizerState):
            if not optimizer.may_load(has_begun=part.has_begun):
                return False
            assert block is not None
            optimizer.load(request.entries, block, has_begun=part.has_begun)
        elif isinstance(request, FetchState):
            if not part.has_begun:
                return False
            entries, data = optimizer.state()
            answer = OptimizerState(self._index, entries, head_of(data))
            self._listener.send(peer, answer, data)
        elif request.final and not part.all_left:
            self._want_final.add(peer)
        elif part.has_begun:
            self._send_parameters(peer)
        else:
            self._want_initial.add(peer)
        return True

    def _send_parameters(self, peer: str) -> None:
        self._listener.send(peer, *self._part.snapshot())

    def has_begun(self) -> None:
        """There is the shard: answer the workers that wait for it."""
        for peer in self._want_initial:
            self._send_parameters(peer)

    def look(self) -> None:
        """Answer the workers that wait until all have left, if all have."""
        if self.all_left_at is None and self._part.all_left:
            self.all_left_at = self._clock.now
        if self._want_final and self._part.all_left:
            for peer in self._want_final:
                self._send_parameters(peer)
            self._want_final.clear()

    def forget(self, peer: str) -> None:
        """Do not answer the process of a worker that another one replaces."""
        self._want_initial.discard(peer)
        self._want_final.discard(peer)
