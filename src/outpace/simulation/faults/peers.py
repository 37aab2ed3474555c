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
from outpace.simulation.faults.failing import FailingRun
from outpace.simulation.faults.processes import Process, computed
from outpace.simulation.faults.saving import Kept, size_of
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.peer_resuming import put_back
from outpace.simulation.peers import PeerSimulation
from outpace.support.units import Time, nanoseconds
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import worker_name
from outpace.sync.peers.parameters import average
from outpace.tasks import Workload


class FailingPeerSimulation(FailingRun, PeerSimulation):
    """A run without servers and with failures. Implements `Engine`.

    With checkpoints the loss of a worker has all begin again, as in a real run; without, or with
    `on_worker_loss: continue`, the others go on.
    """

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._prepare(experiment)
        self._kept_saving: KeptPeerSaving | None = None
        super()._set_up(experiment, workload)
        self._begin_failures(experiment)

    def _new_saving(self, settings: Checkpoint, workload: Workload) -> PeerSaving | None:
        self._kept_saving = KeptPeerSaving(self, workload, self._keeper, settings)
        return self._kept_saving

    # -- processes -----------------------------------------------------------------

    def _context(self, worker: int) -> SimulatedPeer:
        return FailingPeer(self, worker, self._new_process(worker_name(worker)))

    async def _train(self, context: SimulatedPeer) -> None:
        await super()._train(context)
        self._processes[worker_name(context.worker)].has_finished = True
        self._finished.add(context.worker)
        self._end_if_over()

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
        if experiment.on_worker_loss == "restart" and kept is not None:
            self._begin_all_again(loss, kept, failed, [], [worker])
            return
        others = set(range(experiment.workers)) - self._gone - {worker}
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
        self._process = process

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        kernel, process = self._kernel, self._process
        await process.awake()
        process.computing = iteration, kernel.now
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
