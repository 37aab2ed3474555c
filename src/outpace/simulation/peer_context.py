"""The context of a worker's program in virtual time, in a run without servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.blocks.block import Block
from outpace.kernel import Future
from outpace.simulation.collective.all_reduces import SimulatedReduction
from outpace.simulation.collective.exchanges import SimulatedExchange
from outpace.simulation.collective.meetings import SimulatedMeeting
from outpace.simulation.nodes import Computing
from outpace.support.units import Time
from outpace.sync.checkpoint.state import PendingIteration
from outpace.sync.checkpoint.workers import unsent_steps
from outpace.sync.messages import worker_name
from outpace.sync.peers.context import (
    AccumulatedGradient,
    Parameters,
    Unsent,
)
from outpace.sync.peers.parameters import AccumulatedInPlace, Common, Own, Replica
from outpace.sync.policy import Scale

if TYPE_CHECKING:
    from outpace.simulation.peers import PeerSimulation


class SimulatedPeer(Computing):
    """The context of a worker's program. Implements `PeerContext`."""

    def __init__(self, simulation: PeerSimulation, worker: int) -> None:
        super().__init__(simulation, worker, simulation.life.process(worker_name(worker)))
        self._simulation = simulation
        self.workers = simulation.experiment.workers
        self.first_iteration = simulation.first[worker]
        self._common = simulation.new_common(worker)
        self._iteration = -1  # the last that was computed
        # Since this worker last joined an average: the versions at which it computed, and for how
        # long (ns).
        self._versions: list[int] = []
        self._computed: Time = 0
        self._computing_since: Time | None = None
        self.joined_after = -1  # the iteration after which, or beside which, it joined an average

    @property
    def unsent(self) -> Unsent:
        return self._simulation.unsent_before.get(self.worker, Unsent(0, 0))

    def may_save(
        self,
        iteration: int,
        accumulated: AccumulatedGradient | None = None,
        unsent: Unsent | None = None,
    ) -> None:
        simulation = self._simulation
        if not simulation.is_saved:
            return
        kept: PendingIteration | None = None
        if unsent is not None:
            kept = unsent_steps(iteration, unsent, self.workers)
        elif accumulated is not None:
            assert isinstance(accumulated, AccumulatedInPlace)
            kept = PendingIteration(
                iteration=iteration,
                scale=Scale.SUM,
                workers=self.workers,
                count=accumulated.count,
                parts=tuple(accumulated.parts()),
                pushes=tuple((self.worker, version) for version in self._versions),
            )
        simulation.may_save(self.worker, iteration, kept, differs=unsent is not None)

    def common(self) -> Common:
        return self._common

    def accumulated(self) -> AccumulatedInPlace:
        found = AccumulatedInPlace()
        before = self._simulation.accumulated_before.pop(self.worker, None)
        if before is not None:
            found.restore(before.parts, before.count)
            self._versions = [version for _, version in before.pushes]
        return found

    def own(self) -> Own:
        return self._simulation.own(self.worker)

    async def compute(self, at: Parameters, iteration: int) -> Block | None:
        self._computing_since = self._kernel.now
        version = at.version if isinstance(at, Common | Replica) else None
        (gradient,) = await self.execute([at.read()], iteration)
        if version is not None and gradient is not None:
            self._versions.append(version)
        # An all-reduce that ends at this instant has ended when the program looks.
        over = Future[None](self._kernel, "the end of this instant")
        self._kernel.call_at(self._kernel.now, over.set, late=True)
        await over
        self._computed = self.computed_since_joining
        self._computing_since, self._iteration = None, iteration
        return gradient

    @property
    def next_iteration(self) -> int:
        """The iteration after the last one that the worker has computed."""
        return max(self.first_iteration, self._iteration + 1)

    @property
    def computed_since_joining(self) -> Time:
        """Time (ns) that the worker has computed, including a computation under way."""
        since = self._computing_since
        return self._computed + (0 if since is None else self._kernel.now - since)

    def begin_all_reduce(self, value: Block | None, weight: int = 1) -> SimulatedReduction:
        self._computed, self.joined_after = 0, self._iteration
        versions, self._versions = self._versions, []
        return self._simulation.join(self.worker, value, weight, versions)

    def begin_exchange(self, iteration: int) -> SimulatedExchange:
        self._computed, self.joined_after = 0, iteration
        return self._simulation.exchange(self.worker, iteration)

    def meet(self, *, last: bool = False) -> SimulatedMeeting:
        return self._simulation.meetings.come(self.worker, last=last)
