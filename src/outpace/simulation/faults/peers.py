"""A run in virtual time without servers whose workers fail, and how it goes on.

An average that has begun ends, even if a worker dies: it takes much less time than computations do.
It stands still while a member is cut off from the network.
"""

from __future__ import annotations

from outpace.blocks.block import Value
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.worker_losses import LEAST_PEERS
from outpace.errors import RunError
from outpace.simulation.faults.failing import FailingRun
from outpace.simulation.faults.peer_saving import KeptPeerSaving
from outpace.simulation.faults.processes import FailingComputing, Process
from outpace.simulation.faults.saving import Kept
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.peer_resuming import put_back
from outpace.simulation.peers import PeerSimulation
from outpace.sync.messages import worker_name
from outpace.sync.peers.parameters import average
from outpace.tasks import Workload


class FailingPeerSimulation(FailingRun, PeerSimulation):
    """A run without servers and with failures. Implements `Engine`.

    As in a real run all workers begin again from the last checkpoint after the loss of one; with
    `on_worker_loss: continue` all that are left.
    """

    _saving: KeptPeerSaving | None
    _cuts_network = False  # averages that have begun end

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._prepare(experiment)
        self._dropped: set[int] = set()  # workers that were lost, and do not begin again
        super()._set_up(experiment, workload)
        self._begin_failures(experiment)

    def _new_saving(self, settings: Checkpoint) -> KeptPeerSaving:
        return KeptPeerSaving(self, self._workload, self._keeper, settings, self.initial)

    # -- processes -----------------------------------------------------------------

    def _context(self, worker: int) -> SimulatedPeer:
        return FailingPeer(self, worker, self._new_process(worker_name(worker)))

    async def _train(self, context: SimulatedPeer) -> None:
        worker = context.worker
        process = self._processes[worker_name(worker)]
        if worker in self._dropped:
            process.has_finished = True
            self._gone.add(worker)
            self._leave(worker, None)
            return
        await super()._train(context)
        process.has_finished = True
        self._finished.add(worker)
        self._end_if_over()

    @property
    def last_checkpoint(self) -> Kept | None:
        """The checkpoint from which all would begin again."""
        return None if self._saving is None else self._saving.last

    # -- lost workers --------------------------------------------------------------

    def _lose_process(self, process: Process, how: str) -> None:
        worker, experiment = self._numbers[process.name], self.experiment
        loss, failed = RunError(f"{process.name} {how}"), self._failed_at[process.name]
        left = experiment.workers - len(self._dropped | {worker})
        if experiment.on_worker_loss == "stop":
            raise loss
        if experiment.on_worker_loss == "continue":
            if left < LEAST_PEERS:
                raise loss
            self._dropped.add(worker)
            self.network.obstacles.end_partition(process.name)  # nothing waits for its end
        self._begin_all_again(loss, self.last_checkpoint, failed, [], [worker])

    def mean(self) -> Value:
        """Return the mean of the models of workers whose processes are not lost."""
        return average([block for n, block in sorted(self._own.items()) if n not in self._gone])

    # -- all workers begin again -----------------------------------------------------

    def _restore_from(self, kept: Kept) -> None:
        assert self._saving is not None
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
        self._saving.begin_again(kept)

    def _begin_again(self, kept: Kept) -> None:
        self.first = list(kept.first)
        self._start(self._before)


class FailingPeer(FailingComputing, SimulatedPeer):
    """The context of a worker's program, whose process may stand still or be slow."""

    def __init__(self, simulation: FailingPeerSimulation, worker: int, process: Process) -> None:
        super().__init__(simulation, worker)
        self._process = process

    async def _awake(self, iteration: int) -> None:
        await super()._awake(iteration)
