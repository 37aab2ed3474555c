"""The context of a worker's program in virtual time, in a run without servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.blocks.block import Block
from outpace.engine.peers import PeerProgress, Pending, PendingExchange
from outpace.kernel import Future
from outpace.simulation.collective.all_reduces import SimulatedReduction
from outpace.simulation.computing import WorkerLeft
from outpace.support.units import Time
from outpace.sync.checkpoint.workers import unfinished
from outpace.sync.messages import worker_name
from outpace.sync.peers.context import (
    AccumulatedGradient,
    Parameters,
    Unsent,
)
from outpace.sync.peers.parameters import AccumulatedInPlace, Common, Own, Replica

if TYPE_CHECKING:
    from outpace.simulation.peers import Peers
    from outpace.simulation.virtual import VirtualRun


class SimulatedPeer:
    """The context of a worker's program. Implements `PeerContext`."""

    def __init__(self, run: VirtualRun, peers: Peers, worker: int) -> None:
        self.worker, self.workers = worker, run.experiment.workers
        self.first_iteration = peers.first[worker]
        self._peers, self._models, self._kernel = peers, peers.models, run.kernel
        process = run.life.process(worker_name(worker))
        computation = run.body.computation(run, worker, process)
        self._execute, self.must_stop = computation.execute, computation.must_stop
        self.iteration_finished = computation.iteration_finished
        self._common = peers.models.common()
        self.progress = PeerProgress(worker, run.recorder, peers.models.restored[worker])

    @property
    def now(self) -> Time:
        return self._kernel.now

    @property
    def unsent(self) -> Unsent:
        return self.progress.restored.unsent

    def may_save(
        self,
        iteration: int,
        accumulated: AccumulatedGradient | None = None,
        unsent: Unsent | None = None,
    ) -> None:
        if self._peers.saving is not None:
            kept = unfinished(self, iteration, accumulated, unsent, self.progress.versions)
            self._peers.may_save(self.worker, iteration, kept, differs=unsent is not None)

    def common(self) -> Common:
        return self._common

    def accumulated(self) -> AccumulatedInPlace:
        return self.progress.accumulated(AccumulatedInPlace())

    def own(self) -> Own:
        return self._models.own(self.worker)

    async def compute(self, at: Parameters, iteration: int) -> Block | None:
        self.progress.computes(self._kernel.now)
        version = at.version if isinstance(at, Common | Replica) else None
        try:
            (gradient,) = await self._execute([at.read()], iteration)
        except WorkerLeft:
            self.progress.stops()
            return None
        # An all-reduce that ends at the present time counts as ended when the program asks.
        over = Future[None](self._kernel, "the end of this instant")
        self._kernel.call_at(self._kernel.now, over.set, late=True)
        await over
        version = None if gradient is None else version
        self.progress.has_computed(self._kernel.now, iteration, version)
        return gradient

    @property
    def next_iteration(self) -> int:
        """The iteration after the last one that the worker has computed."""
        return max(self.first_iteration, self.progress.iteration + 1)

    def begin_all_reduce(self, value: Block | None, weight: int = 1) -> SimulatedReduction:
        versions = self.progress.joins_all_reduce()
        part = self._peers.all_reduces.join(self.worker, value, weight)
        self._models.computed(part.number, versions)
        return part

    def begin_exchange(self, iteration: int) -> PendingExchange:
        self.progress.joins_exchange(iteration)
        return self._peers.exchanges.begin(self.worker, iteration)

    def meet(self, *, last: bool = False) -> Pending:
        return self._peers.meetings.come(self.worker, last=last)
