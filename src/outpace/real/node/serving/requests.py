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
from outpace.sync.messages import WireMessage

Request: TypeAlias = Fetch | FetchState | OptimizerState  # all of them name a division


class Requests:
    """Answers the requests of workers, now or when their time has come.

    A request waits for the first shard, until all workers have left, or, if its worker is at the
    next division already, until that division has begun here.

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
        # Requests of workers that are at the next division already, by worker and kind.
        self._early: dict[tuple[str, type[WireMessage]], tuple[Request, Block | None]] = {}

    def take(self, peer: str, request: Request, block: Block | None) -> bool:
        """Answer a request, or keep it; False if the worker must not send it now."""
        part = self._part
        if not part.has(request.division):
            if request.division >= part.division:  # the part is still on its way
                self._early[peer, type(request)] = request, block
            # Else the worker has left, and will hear of the present division.
        elif self._may_take(request):
            self._answer(peer, request, block)
        else:
            return False
        return True

    def _may_take(self, request: Request) -> bool:
        has_begun = self._part.has_begun
        if isinstance(request, OptimizerState):
            return self._optimizer.may_load(has_begun=has_begun)
        return has_begun or isinstance(request, Fetch)

    def _answer(self, peer: str, request: Request, block: Block | None) -> None:
        part, optimizer = self._part, self._optimizer
        if isinstance(request, OptimizerState):
            assert block is not None
            optimizer.load(request.entries, block, has_begun=part.has_begun)
        elif isinstance(request, FetchState):
            entries, data = optimizer.state()
            answer = OptimizerState(self._index, entries, head_of(data), part.division)
            self._listener.send(peer, answer, data)
        elif request.final and not part.all_left:
            self._want_final.add(peer)
        elif part.has_begun:
            self._send_parameters(peer)
        else:
            self._want_initial.add(peer)

    def _send_parameters(self, peer: str) -> None:
        self._listener.send(peer, *self._part.snapshot())

    def has_begun(self) -> None:
        """There is the first shard: answer the workers that wait for it."""
        for peer in self._want_initial:
            self._send_parameters(peer)

    def has_moved(self, division: int) -> None:
        """This division has begun here: answer the workers that are at it."""
        self._want_final.clear()  # workers that have left ask the servers of this division again
        early, self._early = self._early, {}
        for (peer, _), (request, block) in early.items():
            if request.division == division:
                self._answer(peer, request, block)

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
