"""A run in virtual time without servers whose workers fail, and how it goes on.

An average that has begun ends, even if a worker dies: it takes much less time than computations do.
It stands still while a member is cut off from the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import Block, Value
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.resuming import CheckpointKeeper
from outpace.errors import RunError
from outpace.simulation.collective.all_reduces import SimulatedReduction
from outpace.simulation.faults.failing import FailingRun
from outpace.simulation.faults.lone_workers import Given, LoneWorkers
from outpace.simulation.faults.processes import Process, computed
from outpace.simulation.faults.saving import Kept, size_of
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.peer_resuming import Before, put_back
from outpace.simulation.peers import PeerSimulation
from outpace.support.units import Time, nanoseconds
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.membership import Start
from outpace.sync.messages import worker_name
from outpace.sync.peers.parameters import average
from outpace.tasks import Workload


class FailingPeerSimulation(FailingRun, PeerSimulation):
    """A run without servers and with failures. Implements `Engine`.

    As in a real run a worker comes back alone under strategies with all-reduces that can be joined.
    Else its loss has all begin again, with checkpoints; without, or with `on_worker_loss:
    continue`, the others go on.
    """

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._prepare(experiment)
        self._kept_saving: KeptPeerSaving | None = None
        strategy = experiment.peers
        assert strategy is not None
        # Pairs do not keep each other's models in virtual time.
        self._can_be_joined = strategy.can_be_joined and not strategy.exchanges
        self._can_be_joined &= experiment.on_worker_loss == "restart"
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
        super()._start(before)

    def _context(self, worker: int) -> FailingPeer:
        return FailingPeer(self, worker, self._new_process(worker_name(worker)))

    async def _train(self, context: SimulatedPeer) -> None:
        await super()._train(context)
        self._processes[worker_name(context.worker)].has_finished = True
        self._finished.add(context.worker)
        self._lone.finished(context.worker)
        self._require_model()
        self._end_if_over()

    def join(
        self, worker: int, value: Block | None, weight: int, versions: Sequence[int]
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

    def stand_still_to_write(self, size_bytes: int) -> Time:
        """Let all workers write a checkpoint; return how long that takes."""
        writing = nanoseconds(self._repairs.writing_s(size_bytes))
        for process in self._processes.values():
            process.stand_still(writing)
        return writing

    def _end(self, process: Process, failed: Time | None = None) -> None:
        process.end()  # what it has sent for an average arrives
        self._failed_at[process.name] = self.kernel.now if failed is None else failed

    # -- lost workers --------------------------------------------------------------

    def _lose_process(self, process: Process, how: str) -> None:
        worker, experiment = self._numbers[process.name], self.experiment
        loss, failed = RunError(f"{process.name} {how}"), self._failed_at[process.name]
        kept = self.last_checkpoint
        if self._can_be_joined and self._trains(besides=worker):
            self._lose_for_a_while(worker, how)
            return
        if experiment.on_worker_loss == "restart" and kept is not None:
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

    def _trains(self, besides: int | None = None) -> bool:
        """True if a worker other than this one is there, and has not finished."""
        absent = self._gone | self._finished | self.away | {besides}
        return any(worker not in absent for worker in self._numbers.values())

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
        first, accumulated = self._given[worker].until(self._all_reduces.begun)
        if accumulated is not None:
            self.accumulated_before[worker] = accumulated
        if self._kept_saving is not None:
            self._kept_saving.give_up()
        self._costs.add("repeated", failed - self._given[worker].began.get(first, failed))
        self.first[worker] = first
        self._lone.lost(worker, how, first)

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
        worker, iterations = start.worker, self.recorder.totals.iterations
        if not self._trains():
            return  # all begin again, or the run is over
        known = nanoseconds(self._repairs.detected_s)
        failed = self._failed_at.pop(worker_name(worker))
        self._costs.add("restart", self.kernel.now - failed - known)
        iterations[worker] = min(start.first, iterations.get(worker, 0))  # others are repeated
        self._given[worker] = Given(start.first, self.accumulated_before.get(worker))
        context = self.contexts[worker] = self._context(worker)
        self._spawn_program(worker_name(worker), self._join_and_train(context))
        self._interruptions.restarted(worker, start.first)

    async def _join_and_train(self, context: FailingPeer) -> None:
        """Go on with the common model, after an all-reduce without a value."""
        worker, reduction = context.worker, self._all_reduces.rejoin(context.worker)
        await reduction.result()
        context.joins(reduction)
        self._lone.has_joined(worker)
        self.meetings.join(worker)
        self._interruptions.began(worker, self.kernel.now)
        name, first = worker_name(worker), context.first_iteration
        self.events.add("rejoined", role=name, generation=self._generations[name], first=first)
        await self._train(context)

    def _require_model(self) -> None:
        """Begin again, or go on without the workers that are away, if no other worker trains."""
        if self.is_down or not self.away or self._trains():
            return
        kept, lost = self.last_checkpoint, sorted(self.away)
        if kept is not None:
            loss, now = self._lone.error(lost[0]), self.kernel.now
            self.kernel.call_at(now, lambda _: self._begin_all_again(loss, kept, now, [], []))
            return
        for worker in lost:
            self._lone.has_joined(worker)
            self._interruptions.removed(worker, self.kernel.now)
            self._gone.add(worker)
            self._leave_for_good(worker)

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


class FailingPeer(SimulatedPeer):
    """The context of a worker's program, whose process may stand still or be slow."""

    def __init__(self, simulation: FailingPeerSimulation, worker: int, process: Process) -> None:
        super().__init__(simulation, worker)
        self._process, self._failing = process, simulation

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        kernel, process = self._kernel, self._process
        await process.awake()
        process.computing = iteration, kernel.now
        self._failing.computes(self.worker, iteration)
        duration_s = process.stretched(self._run_time(self.worker, iteration, kernel.now))
        duration = nanoseconds(duration_s)
        due = kernel.now + duration
        gradient = self._run.gradients.submit(parameters, self.worker, iteration, due)
        await computed(kernel, process, duration)
        self._has_computed()
        return gradient


class KeptPeerSaving(PeerSaving):
    """Takes the checkpoints of a run with failures, and writes them too if there is a keeper.

    Attributes:
        last: from which the run goes on; None: there is none yet.
    """

    def __init__(
        self,
        run: FailingPeerSimulation,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
    ) -> None:
        super().__init__(run, workload, keeper, settings)
        self._failing = run
        self.last: Kept | None = None

    def begin(self) -> None:
        if self._number:  # the run was resumed from this one
            resume = self._failing.resume
            assert resume is not None
            workers = len(resume.first)
            own = [resume.checkpoint.own_state(worker, workers) for worker in range(workers)]
            found = [state for state in own if state is not None]
            self.last = Kept.of(self._failing, self._number, [resume.state(0)], found)
        super().begin()

    @property
    def _can_begin(self) -> bool:
        return not self._failing.away  # their parts would be missing

    def give_up(self) -> None:
        """Begin the open checkpoint anew when the worker is back that is lost now."""
        if self._open is not None:
            self._open, self._is_due = None, True

    def begin_again(self, kept: Kept) -> None:
        """Go on with the models of the last checkpoint."""
        self._is_due, self._open = False, None
        self._passed = kept.states[0].version
        self._saved.clear()
        self._gone.clear()
        self._begins = dict(enumerate(kept.first))

    def soon(self) -> None:
        if not self._failing.is_down:
            super().soon()

    def _write(self, state: ShardState, own: Sequence[ShardState] = ()) -> None:
        failing = self._failing
        kept = Kept.of(failing, self._number + 1, [state], own)
        for worker, mark in enumerate(state.watermarks):
            iterations = kept.totals.iterations
            iterations[worker] = min(1 + mark, iterations.get(worker, 0))
        failing.rows.release(kept.rows)
        if self._keeper is None:
            self._number += 1
        else:
            super()._write(state, own)
        self.last = kept
        largest = max(map(size_of, own), default=0)
        writing = failing.stand_still_to_write(max(size_of(state), largest))
        failing.checkpoint_written(writing, still=writing)
