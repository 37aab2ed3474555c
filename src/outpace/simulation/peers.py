"""The exchange of a run in virtual time without servers: workers average among themselves.

It connects the workers' program to the kernel, the collectives and the laws of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from outpace.blocks.block import Block, Value
from outpace.engine.peers import Pending
from outpace.kernel import Future, Kernel
from outpace.simulation.collective.all_reduces import SimulatedAllReduces
from outpace.simulation.collective.exchanges import SimulatedExchanges
from outpace.simulation.collective.routes import Formula, Messages, Route
from outpace.simulation.control import SimulationControl
from outpace.simulation.faults.held_rows import CheckpointInMemory
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.peer_parameters import PeerModels
from outpace.simulation.virtual import Exchange, VirtualRun
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.messages import worker_name
from outpace.sync.peers.gossip import Pairing
from outpace.sync.peers.meetings import Meetings
from outpace.sync.peers.strategy import PeerStrategy


class SimulatedMeetings:
    """The meetings of a run: each is over when the last worker enters it."""

    def __init__(self, kernel: Kernel, workers: int) -> None:
        self._kernel, self._meetings = kernel, Meetings(range(workers))
        self._parts: dict[int, Pending] = {}  # by worker

    def come(self, worker: int, *, last: bool) -> Pending:
        """See `PeerContext.meet`."""
        arrived = Future[None](self._kernel, "the workers that are not at the meeting")
        part = self._parts[worker] = Pending(self._kernel.now, arrived)
        self._end(self._meetings.come(worker, last=last))
        return part

    def leave(self, worker: int) -> None:
        """Do not wait for this worker any more."""
        self._end(self._meetings.leave(worker))

    def _end(self, workers: list[int]) -> None:
        for worker in workers:
            self._parts[worker].end(self._kernel.now)


class Peers(Exchange[PeerSaving]):
    """The exchange of a run without servers.

    Attributes:
        first: the iteration with which each worker begins.
        initial: what the workers have in common at the start of the run.
        all_reduces, exchanges, meetings: what the workers join.
        contexts: contexts of the workers' programs, by worker.
        saving: takes checkpoints; None: there are none.
    """

    def __init__(self, run: VirtualRun, models: PeerModels) -> None:
        self._run, self._kernel, self.models = run, run.kernel, models
        self._workers, self._strategy = run.experiment.workers, models.strategy
        self.initial = models.blocks.initial
        self.first: Sequence[int] = [0] * self._workers
        if run.resume is not None:
            self.first = run.resume.first
        self.saving: PeerSaving | None = None

    def start(self, saving: PeerSaving | None) -> None:
        self.saving = saving
        self.control = SimulationControl(self._run, [])
        self._start()

    def _start(self) -> None:
        """Start the workers with the present models."""
        run, kernel, strategy, models = self._run, self._kernel, self._strategy, self.models
        self._routes = of_pairs, of_all = routes_of(run, strategy)
        self.all_reduces = SimulatedAllReduces(
            kernel,
            of_all,
            strategy.all_reduce,
            strategy.wire,
            self._workers,
            partial(models.model.new_sum, self._workers),
            lambda part: self.contexts[part.worker].progress.averaged(part),
            models.blocks.exact,
            models.averages,
        )
        self.exchanges = SimulatedExchanges(
            kernel,
            of_pairs,
            models.blocks.size_bytes,
            Pairing(self._workers, run.experiment.seed, models.averages),
            models.average,
            lambda pair: self.contexts[pair.members[0]].progress.averaged(pair),
        )
        self.meetings = SimulatedMeetings(kernel, self._workers)
        self.contexts = [SimulatedPeer(run, self, worker) for worker in range(self._workers)]
        for context in self.contexts:
            run.life.spawn(worker_name(context.worker), self._train(context))

    async def _train(self, context: SimulatedPeer) -> None:
        if context.worker in self._run.life.gone:
            self._leave(context.worker, None)
            return
        await self._strategy.train(context)
        self._leave(context.worker, context.next_iteration)

    # -- the models -----------------------------------------------------------------------

    def parameters(self) -> list[Block]:
        return self.models.parameters()

    @property
    def updates(self) -> int:
        return self.models.updates

    @property
    def changes(self) -> tuple[int, int]:
        return self.models.changes

    # -- failures -----------------------------------------------------------------------

    def go_back(self, kept: CheckpointInMemory) -> None:
        """Reset the models to a checkpoint; nothing runs until `start_again`."""
        for route in self._routes:
            route.end()
        self.exchanges.abandon()
        by_worker = {each.shard: each for each in kept.own}
        (state,) = kept.states
        self.models.begin(state, [by_worker.get(worker) for worker in range(self._workers)])
        assert self.saving is not None
        self.saving.begin_again(kept)

    def start_again(self, kept: CheckpointInMemory) -> None:
        """Start the workers again, after `go_back`."""
        self.first = kept.first
        self._start()

    # -- checkpoints --------------------------------------------------------------------

    def state(self, iterations: Mapping[int, int], parameters: Value) -> ShardState:
        """Return the state of the model that all workers have when they begin these iterations."""
        averages = max(self.all_reduces.ended, self.exchanges.count)
        return self.models.state(iterations, averages, parameters)

    def may_save(
        self, worker: int, iteration: int, pending: PendingIteration | None, *, differs: bool
    ) -> None:
        """Save a worker, if asked to, before it begins this iteration, in a run with checkpoints.

        Its models and `pending` are all its state. differs: see `PeerModels.own_state`.
        """
        assert self.saving is not None
        models, results = self.models, self.all_reduces.ended
        if self._strategy.saved_apart:
            self.saving.apart(worker, iteration)
        elif pending is None:
            self.saving.look(worker, iteration, results)
        else:
            state = partial(models.own_state, worker, iteration, pending, differs=differs)
            self.saving.gather(worker, results, state)

    def _leave(self, worker: int, after: int | None) -> None:
        """Let the others continue without a worker. after: see `PeerSaving.leave`."""
        if self.saving is not None:
            self.saving.leave(worker, after, self.all_reduces.ended)
        self.models.left.add(worker)
        self.all_reduces.leave(worker)
        self.meetings.leave(worker)
        self.exchanges.leave(worker)
        self._run.body.left(worker)


def routes_of(run: VirtualRun, strategy: PeerStrategy) -> tuple[Route, Route]:
    """Return the routes of messages: of averages of two workers, and of all-reduces."""
    law = run.experiment.network
    is_fair = law is not None and law.contention == "fair"
    has_own_cost = law is not None and law.all_reduce is not None
    # Simultaneous exchanges share the connection of a machine with several workers.
    meet = law is not None and strategy.exchanges and run.experiment.machines.share_workers
    formula: Route = Formula(run.kernel, run.network)
    route = Messages(run.kernel, run.network) if is_fair or meet else formula
    return route, formula if has_own_cost else route
