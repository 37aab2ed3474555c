"""The context of a worker's program in virtual time, in a run without servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.blocks.block import Block
from outpace.engine.peers import PendingExchange, PendingMeeting, SinceJoining
from outpace.kernel import Future
from outpace.simulation.collective.all_reduces import SimulatedReduction
from outpace.simulation.nodes import Computing
from outpace.sync.checkpoint.workers import unfinished
from outpace.sync.messages import worker_name
from outpace.sync.peers.context import (
    AccumulatedGradient,
    Parameters,
    Unsent,
)
from outpace.sync.peers.parameters import AccumulatedInPlace, Common, Own, Replica

if TYPE_CHECKING:
    from outpace.simulation.peers import PeerSimulation


class SimulatedPeer(Computing):
    """The context of a worker's program. Implements `PeerContext`."""

    def __init__(self, simulation: PeerSimulation, worker: int) -> None:
        super().__init__(simulation, worker, simulation.life.process(worker_name(worker)))
        self._simulation = simulation
        self.workers = simulation.experiment.workers
        self.first_iteration, self._restored = simulation.first[worker], simulation.restored[worker]
        self._common = simulation.new_common(worker)
        self.computed = SinceJoining()

    @property
    def unsent(self) -> Unsent:
        return self._restored.unsent

    def may_save(
        self,
        iteration: int,
        accumulated: AccumulatedGradient | None = None,
        unsent: Unsent | None = None,
    ) -> None:
        simulation, versions = self._simulation, self.computed.versions
        if simulation.is_saved:
            kept = unfinished(self, iteration, accumulated, unsent, versions)
            simulation.may_save(self.worker, iteration, kept, differs=unsent is not None)

    def common(self) -> Common:
        return self._common

    def accumulated(self) -> AccumulatedInPlace:
        found = AccumulatedInPlace()
        before = self._restored.accumulated
        if before is not None:
            found.restore(before.parts, before.count)
            self.computed.versions = [version for _, version in before.pushes]
        return found

    def own(self) -> Own:
        return self._simulation.own(self.worker)

    async def compute(self, at: Parameters, iteration: int) -> Block | None:
        self.computed.computes(self._kernel.now)
        version = at.version if isinstance(at, Common | Replica) else None
        (gradient,) = await self.execute([at.read()], iteration)
        # An all-reduce that ends at this instant has ended when the program looks.
        over = Future[None](self._kernel, "the end of this instant")
        self._kernel.call_at(self._kernel.now, over.set, late=True)
        await over
        version = None if gradient is None else version
        self.computed.has_computed(self._kernel.now, iteration, version)
        return gradient

    @property
    def next_iteration(self) -> int:
        """The iteration after the last one that the worker has computed."""
        return max(self.first_iteration, self.computed.iteration + 1)

    def begin_all_reduce(self, value: Block | None, weight: int = 1) -> SimulatedReduction:
        versions = self.computed.joins_all_reduce()
        return self._simulation.join(self.worker, value, weight, versions)

    def begin_exchange(self, iteration: int) -> PendingExchange:
        self.computed.joins_exchange(iteration)
        return self._simulation.exchange(self.worker, iteration)

    def meet(self, *, last: bool = False) -> PendingMeeting:
        return self._simulation.meetings.come(self.worker, last=last)
