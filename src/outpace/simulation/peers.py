"""A run in virtual time without servers: workers average among themselves.

Connects the workers' program to the kernel, the collectives and the laws of the cluster. The newest
version of the common model is evaluated; if there is none, the mean of the workers' own models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from outpace.blocks.block import Block, Value, value_of
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.peers import PendingExchange, PendingMeeting
from outpace.errors import ConfigError
from outpace.kernel import Future, Kernel
from outpace.optim import Optimizer, OptimizerState
from outpace.record.event_log import EventLog
from outpace.record.trace import Trace
from outpace.simulation.collective.all_reduces import SimulatedAllReduces, SimulatedReduction
from outpace.simulation.collective.exchanges import SimulatedExchanges
from outpace.simulation.collective.routes import Formula, Messages, Route
from outpace.simulation.control import SimulationControl
from outpace.simulation.faults.peer_failures import PeerFailures
from outpace.simulation.faults.saving import Kept
from outpace.simulation.life import Life
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.virtual import VirtualRun
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.checkpoint.workers import (
    Restored,
    common_state,
    restore_own,
    state_of_worker,
)
from outpace.sync.messages import worker_name
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.sync.peers.gossip import Pairing
from outpace.sync.peers.meetings import Meetings
from outpace.sync.peers.parameters import Common, Own, Replicas, SharedModel, average, replicas
from outpace.tasks import Workload


class SimulatedMeetings:
    """The meetings of a run: each is over at the moment in which the last worker comes."""

    def __init__(self, kernel: Kernel, workers: int) -> None:
        self._kernel, self._meetings = kernel, Meetings(range(workers))
        self._parts: dict[int, PendingMeeting] = {}  # by worker

    def come(self, worker: int, *, last: bool) -> PendingMeeting:
        """See `PeerContext.meet`."""
        all_here = Future[None](self._kernel, "the workers that are not at the meeting")
        part = self._parts[worker] = PendingMeeting(self._kernel.now, all_here)
        self._end(self._meetings.come(worker, last=last))
        return part

    def leave(self, worker: int) -> None:
        """Wait no longer for this worker."""
        self._end(self._meetings.leave(worker))

    def _end(self, workers: list[int]) -> None:
        for worker in workers:
            self._parts[worker].end(self._kernel.now)


class PeerSimulation(VirtualRun):
    """A run without servers. Implements `Engine`."""

    _saving: PeerSaving | None

    def _new_life(self, trace: Trace, events: EventLog) -> Life:
        if self.experiment.faults is None:
            return super()._new_life(trace, events)
        return PeerFailures(self, trace, events)

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        sync = experiment.peers
        assert sync is not None
        (initial,) = workload.initial_parameters()
        self.initial, self._strategy = value_of(initial), sync
        self.first: Sequence[int] = [0] * experiment.workers
        if self.resume is not None:
            self.first = self.resume.first
        self.model = self._new_model()
        self._own: dict[int, ParameterBlock] = {}  # by worker
        # By all-reduce: the versions of the common model at which its gradients were computed.
        self._computed_at: dict[int, list[int]] = {}
        self._steps = 0  # of workers on parameters of their own
        self._averages_before = self._steps_before = 0  # at the checkpoint
        self.restored = [Restored()] * experiment.workers
        if self.resume is not None:
            try:
                self._put_back(self.resume.state(0), self.resume.own_states())
            except OSError as error:
                raise ConfigError(f"{self.resume.path}: {error}") from error
        self._set_up_saving()
        self._control = SimulationControl(self, [], [])
        self._start()

    def _new_model(self) -> SharedModel:
        block = self._common_block()
        workers = self.experiment.workers
        return SharedModel(block, workers, self._committed, self._replicas())

    def _new_saving(self, settings: Checkpoint) -> PeerSaving:
        return PeerSaving(self, self._workload, self._keeper, settings, self.initial)

    def _put_back(self, before: ShardState, own: Sequence[ShardState | None]) -> None:
        """Put saved models into those of the run.

        Args:
            before: of the model that all workers have.
            own: what each worker had beside it, if anything.
        """
        if self._strategy.has_common:
            self.model.restore(before.parameters, before.optimizer, before.pushes, before.version)
        if self._strategy.has_own:
            for worker, kept in enumerate(own):
                restore_own(self.own_block(worker), before, kept)
        self._averages_before, self._steps_before = before.version, before.pushes
        self.restored = [Restored.of(before, kept) for kept in own]

    def _start(self) -> None:
        """Start the workers, with the models as they are now."""
        experiment, sync = self.experiment, self._strategy
        averages = self._averages_before
        if not sync.has_common:
            self._steps = self._steps_before
        self._left: set[int] = set()
        law = experiment.network
        is_fair = law is not None and law.contention == "fair"
        has_own_cost = law is not None and law.all_reduce is not None
        # Exchanges that go on at once meet on the connection of a machine with several workers.
        meet = law is not None and sync.exchanges and experiment.machines.share_workers
        route = Messages if is_fair or meet else Formula
        self._routes: tuple[Route, Route] = (
            route(self.kernel, self.network),
            Formula(self.kernel, self.network),
        )
        self._all_reduces = SimulatedAllReduces(
            self.kernel,
            self._routes[has_own_cost],
            sync.all_reduce,
            sync.wire,
            experiment.workers,
            partial(self.model.new_sum, experiment.workers),
            lambda part: self._averaged(part.worker, part),
            self._exact,
            averages,
        )
        self._exchanges = SimulatedExchanges(
            self.kernel,
            self._routes[0],
            self.initial.nbytes,
            Pairing(experiment.workers, experiment.seed, averages),
            self._average,
            lambda pair: self._averaged(pair.members[0], pair),
        )
        self.meetings = SimulatedMeetings(self.kernel, experiment.workers)
        self.contexts = [self._context(worker) for worker in range(experiment.workers)]
        for context in self.contexts:
            self.life.spawn(worker_name(context.worker), self._train(context))

    # -- failures -----------------------------------------------------------------------

    def go_back(self, kept: Kept) -> None:
        """Put the models back to a checkpoint; nothing runs until `start_again`."""
        for route in self._routes:
            route.end()
        self._exchanges.abandon()
        self._computed_at.clear()
        self._own.clear()
        self.model = self._new_model()
        by_worker = {each.shard: each for each in kept.own}
        own = [by_worker.get(worker) for worker in range(self.experiment.workers)]
        (state,) = kept.states
        self._put_back(state, own)
        assert self._saving is not None
        self._saving.begin_again(kept)

    def start_again(self, kept: Kept) -> None:
        """Start the workers again, after `go_back`."""
        self.first = kept.first
        self._start()

    # -- checkpoints --------------------------------------------------------------------

    def state(self, iterations: Mapping[int, int], parameters: Value) -> ShardState:
        """Return the state of the model that all workers have when they begin these iterations."""
        optimizer: OptimizerState = {}
        pushes = self._steps
        if self._strategy.has_common:
            parameters, optimizer, pushes = self.model.state()
        averages = max(self._all_reduces.ended, self._exchanges.count)
        return common_state(iterations, averages, pushes, parameters, optimizer)

    def own_states(self, iterations: Mapping[int, int]) -> list[ShardState]:
        """Return what workers have beside the model when they begin these iterations; copies."""
        workers, apart = sorted(iterations), self._strategy.saved_apart
        if not self._strategy.has_own:
            return []
        return [self.own_state(each, iterations[each], (), differs=apart) for each in workers]

    def parameters_of(self, worker: int | None) -> Value:
        """Return the parameters of a worker's own model; of the common one if it has none.

        worker: None: return the mean of the own models of workers that are not lost.
        """
        if worker is None:
            gone = self.life.gone
            return average([block for n, block in sorted(self._own.items()) if n not in gone])
        has_own = self._strategy.has_own
        return self.own_block(worker).read() if has_own else self.model.newest.value

    def own_state(
        self,
        worker: int,
        iteration: int,
        pending: tuple[PendingIteration, ...],
        *,
        differs: bool,
    ) -> ShardState:
        """Return what a worker has beside the model when it begins this iteration.

        differs: True if its own model has steps that no other has.
        """
        if not self._strategy.has_own:
            return state_of_worker(worker, iteration, {}, pending)
        block = self.own_block(worker)
        parameters = block.read() if differs else None
        return state_of_worker(worker, iteration, block.optimizer_state(), pending, parameters)

    def may_save(
        self, worker: int, iteration: int, pending: PendingIteration | None, *, differs: bool
    ) -> None:
        """A worker begins this iteration next, and has nothing but its models and this sum.

        differs: as for `own_state`.
        """
        if self._saving is None:
            return
        if self._strategy.saved_apart:
            self._saving.apart(worker, iteration)
        elif pending is None:
            self._saving.look(worker, iteration, self._all_reduces.ended)
        else:
            state = partial(self.own_state, worker, iteration, (pending,), differs=differs)
            self._saving.gather(worker, self._all_reduces.ended, state)

    @property
    def is_saved(self) -> bool:
        """True if the run has checkpoints."""
        return self._saving is not None

    # -- where runs of scripts, and runs with faults, differ ----------------------------

    _exact = 0  # elements at the end of a value that are not rounded on their way

    def _common_block(self) -> ParameterBlock:
        """Return the block of the common model."""
        return self._new_block(self._strategy.common_optimizer(self._optimizer))

    def new_common(self, worker: int) -> Common:
        """Return this worker's view of the common model."""
        return Common(self.model)

    def _new_own(self, worker: int) -> ParameterBlock:
        """Make the block of the model that this worker alone changes."""
        return self._new_block(self._optimizer)

    def _replicas(self) -> Replicas | None:
        """Return how replicas take steps; None if the strategy has none."""
        return replicas(self._strategy, self._optimizer, partial(self._new_block, self._optimizer))

    def _new_block(self, optimizer: Optimizer) -> ParameterBlock:
        return parameter_block(self.initial, optimizer, layers=self._layers_of[0])

    def _context(self, worker: int) -> SimulatedPeer:
        return SimulatedPeer(self, worker)

    # -- the run ------------------------------------------------------------------------

    async def _train(self, context: SimulatedPeer) -> None:
        if context.worker in self.life.dropped:
            self._leave(context.worker, None)
            return
        await self._strategy.train(context)
        self._leave(context.worker, context.next_iteration)

    def parameters(self) -> list[Block]:
        if self._strategy.has_common or not self._own:
            return [self.model.newest.value]
        return [self.parameters_of(None)]

    @property
    def updates(self) -> int:
        """Commits to the common model; without one, N steps of workers count as an update."""
        if self._strategy.has_common:
            return self.model.version
        return self._steps // self.experiment.workers

    @property
    def _changes(self) -> tuple[int, int]:
        return self.model.version, self._steps

    def own(self, worker: int) -> Own:
        """Return the model that this worker alone changes."""
        return Own(self.own_block(worker), worker, self._stepped)

    def own_block(self, worker: int) -> ParameterBlock:
        """Return the block of the model that this worker alone changes."""
        if worker not in self._own:
            self._own[worker] = self._new_own(worker)
        return self._own[worker]

    def join(
        self, worker: int, value: Block | None, weight: int, versions: Sequence[int]
    ) -> SimulatedReduction:
        """Let this worker join its next all-reduce.

        Args:
            versions: the versions of the common model at which its gradients were computed.
        """
        part = self._all_reduces.join(worker, value, weight)
        if versions:
            self._computed_at.setdefault(part.number, []).extend(versions)
        return part

    def exchange(self, worker: int, iteration: int) -> PendingExchange:
        """Let this worker average with another worker that has not left."""
        return self._exchanges.begin(worker, iteration)

    def _leave(self, worker: int, after: int | None) -> None:
        """Let the others go on without a worker. after: see `PeerSaving.leave`."""
        if self._saving is not None:
            self._saving.leave(worker, after, self._all_reduces.ended)
        self._left.add(worker)
        self._all_reduces.leave(worker)
        self.meetings.leave(worker)
        self._exchanges.leave(worker)

    def _average(self, one: int, other: int) -> None:
        blocks = [self._own[one], self._own[other]]
        mean = average(blocks)
        for block in blocks:
            block.replace(mean)

    def _committed(self, gradients: int) -> None:
        before = self.model.version - 1  # the result of all-reduce n is commit n
        versions = self._computed_at.pop(before, ())
        self.recorder.gradients_applied(gradients, (before - version for version in versions))
        self._on_update(self.updates)

    def _stepped(self) -> None:
        if self._strategy.has_common:
            return  # commits count
        self._steps += 1
        self.recorder.gradients_applied(1)
        if self._steps % self.experiment.workers == 0:
            self._on_update(self.updates)

    def _averaged(self, worker: int, average: SimulatedReduction | PendingExchange) -> None:
        computed = self.contexts[worker].computed
        computing = computed.computing_between(average.joined, average.ended)
        self.recorder.averaged(worker, computed.joined_after, average, computing)
