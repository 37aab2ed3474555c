"""A run in virtual time without servers whose workers fail, and how it goes on.

An average that has begun ends, even if a worker dies: it takes much less time than computations do.
It stands still while a member is cut off from the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from outpace.blocks.block import Block, Value
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.worker_losses import begins_again, comes_back_alone
from outpace.errors import RunError
from outpace.simulation.collective.all_reduces import SimulatedReduction
from outpace.simulation.faults.failing import FailingRun
from outpace.simulation.faults.lone_workers import AfterAverage, Given, LoneWorkers
from outpace.simulation.faults.peer_saving import KeptPeerSaving
from outpace.simulation.faults.processes import FailingComputing, Process
from outpace.simulation.faults.saving import Kept
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.peer_resuming import Before, put_back
from outpace.simulation.peers import PeerSimulation
from outpace.support.units import nanoseconds
from outpace.sync.membership import Start
from outpace.sync.messages import worker_name
from outpace.sync.peers.parameters import Own, average
from outpace.tasks import Workload


class FailingPeerSimulation(FailingRun, PeerSimulation):
    """A run without servers and with failures. Implements `Engine`.

    As in a real run a worker comes back alone under strategies with all-reduces that can be joined.
    Else its loss has all begin again, with checkpoints; without, or with `on_worker_loss:
    continue`, the others go on.
    """

    _cuts_network = False  # averages that have begun end

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._prepare(experiment)
        self._kept_saving: KeptPeerSaving | None = None
        wants_restart = experiment.on_worker_loss == "restart"
        self._can_be_joined = comes_back_alone(experiment) and wants_restart
        super()._set_up(experiment, workload)
        self._begin_failures(experiment)

    def _new_saving(self, settings: Checkpoint, workload: Workload) -> PeerSaving | None:
        self._kept_saving = KeptPeerSaving(self, workload, self._keeper, settings)
        return self._kept_saving

    # -- processes -----------------------------------------------------------------

    def _start(self, before: Before) -> None:
        self._given = [
            Given(self.first[worker], before.accumulated.get(worker))
            for worker in range(self.experiment.workers)
        ]
        self._lone = LoneWorkers(self)
        # Of workers with models of their own: what they had at the start, and after their last
        # average; iterations and steps that are in the model now.
        self._had = {worker: block.read() for worker, block in self._own.items()}
        self._after: dict[int, AfterAverage] = {}
        self._own_progress = {worker: (self.first[worker], 0) for worker in self._numbers.values()}
        super()._start(before)

    def _context(self, worker: int) -> SimulatedPeer:
        return FailingPeer(self, worker, self._new_process(worker_name(worker)))

    async def _train(self, context: SimulatedPeer) -> None:
        await super()._train(context)
        self._processes[worker_name(context.worker)].has_finished = True
        self._finished.add(context.worker)
        self._lone.finished(context.worker)
        self._require_model()
        self._end_if_over()

    def join(
        self,
        worker: int,
        value: Block | None,
        weight: int,
        versions: Sequence[int],
    ) -> SimulatedReduction:
        part = super().join(worker, value, weight, versions)
        self._given[worker].add(part.number, self.contexts[worker].next_iteration)
        return part

    def computes(self, worker: int, iteration: int) -> None:
        """A worker begins to compute this iteration."""
        self._given[worker].began[iteration] = self.kernel.now

    @property
    def last_checkpoint(self) -> Kept | None:
        """The checkpoint from which all would begin again."""
        return None if self._kept_saving is None else self._kept_saving.last

    # -- lost workers --------------------------------------------------------------

    def _lose_process(self, process: Process, how: str) -> None:
        worker, experiment = self._numbers[process.name], self.experiment
        loss, failed = RunError(f"{process.name} {how}"), self._failed_at[process.name]
        kept = self.last_checkpoint
        if self._can_be_joined and self._can_give(worker, besides=worker):
            self._lose_for_a_while(worker, how)
            self._require_model()
            return
        if kept is not None and begins_again(experiment, kept.number):
            self._begin_all_again(loss, kept, failed, [], [worker])
            return
        others = set(range(experiment.workers)) - self._gone - {worker} - self.away
        if experiment.on_worker_loss == "stop" or not others:
            raise loss
        self._costs.worker_losses += 1
        self._costs.add("detection", self.kernel.now - failed)
        self._interruptions.removed(worker, failed)
        self._log_loss(process.name, how)
        self._gone.add(worker)
        self.network.obstacles.end_partition(process.name)  # averages that have begun end
        self._leave_for_good(worker)
        self._end_if_over()

    # -- workers that come back alone ------------------------------------------------

    @property
    def away(self) -> set[int]:
        """The workers that are lost and come back alone."""
        return set(self._lone.away)

    def _can_give(self, worker: int, besides: int | None = None) -> bool:
        """True if others can give the model with which the successor of a worker begins.

        besides: a worker that cannot.
        """
        absent = self._gone | self._finished | self.away | {besides}
        here = set(self._numbers.values()) - absent
        after = self._after.get(worker)
        return bool(here) and (after is None or after.partner in here)

    def own(self, worker: int) -> Own:
        return Own(self.own_block(worker), worker, partial(self._has_stepped, worker))

    def _has_stepped(self, worker: int) -> None:
        _, steps = self._own_progress[worker]
        self._own_progress[worker] = self.contexts[worker].next_iteration, steps + 1
        self._stepped()

    def _average(self, one: int, other: int) -> None:
        super()._average(one, other)
        for worker, partner in ((one, other), (other, one)):
            self._after[worker] = AfterAverage(
                partner, self._own[worker].read(), *self._own_progress[worker]
            )
            self._given[worker].forget(self._own_progress[worker][0])

    def _lose_for_a_while(self, worker: int, how: str) -> None:
        name = worker_name(worker)
        failed = self._failed_at[name]
        self._costs.worker_losses += 1
        self._costs.add("detection", self.kernel.now - failed)
        self._interruptions.lost(worker, failed)
        self._log_loss(name, how)
        self.network.obstacles.end_partition(name)  # averages that have begun end
        self._all_reduces.lose(worker)
        self.meetings.leave(worker)
        if self._strategy.exchanges:
            self._left.add(worker)
            contexts = self.contexts
            self._exchanges.lose(worker, lambda n: self._partner(n, contexts[n].joined_after))
            first = self._first_of(worker)
        else:
            first, accumulated = self._given[worker].until(self._all_reduces.begun)
            if accumulated is not None:
                self.accumulated_before[worker] = accumulated
        if self._kept_saving is not None:
            self._kept_saving.give_up()
        self._costs.add("repeated", failed - self._given[worker].began.get(first, failed))
        self.first[worker] = first
        self._lone.lost(worker, how, first)

    def _first_of(self, worker: int) -> int:
        """Return the first iteration that the model after its last average does not have."""
        after = self._after.get(worker)
        return self._given[worker].first if after is None else after.first

    def replaced(self, start: Start) -> None:
        """Another process is started for a worker."""
        self._recovery.restarts += 1
        name, generation = worker_name(start.worker), start.generation
        self._generations[name] = generation
        self.events.add(
            "restarted", role=name, generation=generation, first=start.first, updates_lost=0
        )

    def begin_alone(self, start: Start) -> None:
        """The process is ready."""
        worker = start.worker
        if worker not in self.away or not self._can_give(worker):
            return  # all begin again, or go on without it
        known = nanoseconds(self._repairs.detected_s)
        failed = self._failed_at.pop(worker_name(worker))
        self._costs.add("restart", self.kernel.now - failed - known)
        context = self.contexts[worker] = self._context(worker)
        self._spawn_program(worker_name(worker), self._join_and_train(context))

    async def _join_and_train(self, context: SimulatedPeer) -> None:
        """Go on with the common model, after an all-reduce without a value; or as in a pair."""
        worker = context.worker
        if self._strategy.exchanges:
            await self._exchanges.ended(worker)
            self._take_kept_model(context)
        else:
            self._given[worker] = Given(
                context.first_iteration, self.accumulated_before.get(worker)
            )
            reduction = self._all_reduces.rejoin(worker)
            await reduction.result()
            context.joins(reduction)
        iterations = self.recorder.totals.iterations  # those that are repeated do not count
        iterations[worker] = min(context.first_iteration, iterations.get(worker, 0))
        self._lone.has_joined(worker)
        self._left.discard(worker)
        self.meetings.join(worker)
        if self._kept_saving is not None:
            self._kept_saving.joins(worker, context.first_iteration)
        self._interruptions.restarted(worker, context.first_iteration)
        self._interruptions.began(worker, self.kernel.now)
        name, first = worker_name(worker), context.first_iteration
        self.events.add("rejoined", role=name, generation=self._generations[name], first=first)
        await self._train(context)

    def _take_kept_model(self, context: SimulatedPeer) -> None:
        """Go on with the model that the last partner has kept."""
        worker = context.worker
        after = self._after.get(worker)
        if after is None:
            value = self._had.get(worker, self.initial)
            first, steps = self._given[worker].first, 0
        else:
            value, first, steps = after.value, after.first, after.steps
        lost = self._own_progress[worker][1] - steps
        self._steps -= lost
        self.recorder.totals.applied -= lost
        self._own_progress[worker] = first, steps
        block = self._own[worker] = self._new_own(worker)
        block.replace(value)
        context.first_iteration = first

    def _require_model(self) -> None:
        """Begin again, or go on without workers that are away, if none can give their models."""
        lost = sorted(worker for worker in self.away if not self._can_give(worker))
        if self.is_down or not lost:
            return
        kept = self.last_checkpoint
        if kept is not None:
            loss = self._lone.error(lost[0])
            self.kernel.call_at(self.kernel.now, lambda _: self._go_back(loss, kept))
            return
        for worker in lost:
            self._lone.has_joined(worker)
            self._interruptions.removed(worker, self.kernel.now)
            self._gone.add(worker)
            self._leave_for_good(worker)

    def _go_back(self, loss: RunError, kept: Kept) -> None:
        if not self.is_down:
            self._begin_all_again(loss, kept, self.kernel.now, [], [])

    def mean(self) -> Value:
        """Return the mean of the models of workers whose processes are not lost."""
        return average([block for n, block in sorted(self._own.items()) if n not in self._gone])

    def _leave_for_good(self, worker: int) -> None:
        """Let the others average without this worker."""
        self._note_end_of_saving(worker, None)
        self._left.add(worker)
        self._all_reduces.lose(worker)
        self.meetings.leave(worker)
        self._exchanges.lose(
            worker, lambda waiting: self._partner(waiting, self.contexts[waiting].joined_after)
        )

    # -- all workers begin again -----------------------------------------------------

    def _restore_from(self, kept: Kept) -> None:
        assert self._kept_saving is not None
        self._lone.end()
        self._all_reduces.abandon()
        self._exchanges.abandon()
        self._route.end()
        self._computed_at.clear()
        self._own.clear()
        self.model = self._new_model()
        (state,) = kept.states
        by_worker = {each.shard: each for each in kept.own}
        own = [by_worker.get(worker) for worker in range(self.experiment.workers)]
        self._before = put_back(state, own, self._strategy, self.model, self.own_block)
        self._kept_saving.begin_again(kept)

    def _begin_again(self, kept: Kept) -> None:
        self.first = list(kept.first)
        self._start(self._before)


class FailingPeer(FailingComputing, SimulatedPeer):
    """The context of a worker's program, whose process may stand still or be slow."""

    def __init__(self, simulation: FailingPeerSimulation, worker: int, process: Process) -> None:
        super().__init__(simulation, worker)
        self._process, self._failing = process, simulation

    async def _awake(self, iteration: int) -> None:
        await super()._awake(iteration)
        self._failing.computes(self.worker, iteration)
