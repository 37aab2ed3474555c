"""Scripts for DistributedDataParallel in virtual time whose workers fail (`sync.kind=ssgd`).

The collectives of such scripts concern all workers. So after the loss of one all begin again from
the last checkpoint, or the run ends, as in real runs.
"""

from __future__ import annotations

from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.errors import RunError
from outpace.simulation.faults.peer_saving import KeepsLast
from outpace.simulation.faults.processes import Process, computed
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.scripts.beginning_again import BeginAgain
from outpace.simulation.faults.scripts.saving import KeptScriptPeerSaving
from outpace.simulation.faults.scripts.undisturbed import Iterations, rate_of_steps
from outpace.simulation.scripts.collectives.run import FollowedSimulation
from outpace.simulation.scripts.collectives.saving import FollowedSaving
from outpace.simulation.scripts.collectives.worker import FollowedIteration, FollowedWorker
from outpace.simulation.scripts.messages import FromScript
from outpace.simulation.scripts.process import ScriptProcess
from outpace.support.units import Time
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


class KeptFollowedSaving(KeptScriptPeerSaving, FollowedSaving):
    """Takes the checkpoints of such a run."""


class FailingFollowedSimulation(BeginAgain, FollowedSimulation):
    """A run of such a script. Implements `Engine`."""

    _cuts_network = False  # collectives that have begun end

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._prepare(experiment)
        self._kept_saving: KeepsLast | None = None
        self.messages = [Iterations() for _ in range(experiment.workers)]
        super()._set_up(experiment, workload)
        self._begin_failures(experiment)

    def _new_saving(self, settings: Checkpoint, workload: Workload) -> FollowedSaving:
        keeper, processes = self._keeper, self._script_processes
        saving = KeptFollowedSaving(self, workload, keeper, settings, processes)
        self._kept_saving = saving
        return saving

    def _worker(self, process: ScriptProcess) -> FollowedWorker:
        steps, worker = self._steps[process.worker], process.worker
        life = self._new_process(worker_name(worker))
        return FailingFollowedWorker(self, process, steps, life)

    def has_finished(self, worker: int) -> None:
        """The script of a worker has left the run."""
        self._finished.add(worker)
        self._end_if_over()

    def _lose_process(self, process: Process, how: str) -> None:
        loss, failed = RunError(f"{process.name} {how}"), self._failed_at[process.name]
        kept = None if self._kept_saving is None else self._kept_saving.last
        if kept is None or self.experiment.on_worker_loss != "restart":
            raise loss
        self._begin_all_again(loss, kept, failed, [], [self._numbers[process.name]])

    def _restore_from(self, kept: Kept) -> None:
        assert self._kept_saving is not None
        for route in self._routes:
            route.end()
        self.collectives = self._collectives_of(self.experiment)
        self._replace_scripts(kept)
        self._steps = list(kept.first)
        self._kept_saving.begin_again(kept)

    def _begin_again(self, kept: Kept) -> None:
        self._warn_of_anew(kept)
        self._start()

    def _undisturbed_rate(self) -> float | None:
        have_ended = len(self._finished) == len(self.workers)
        return rate_of_steps(
            self.experiment,
            self._workload.first,
            self.messages,
            self._ended_early_at,
            have_ended=have_ended,
        )


class FailingFollowedWorker(FollowedWorker):
    """Follows the script of a worker whose process may stand still or be slow."""

    def __init__(
        self, run: FailingFollowedSimulation, process: ScriptProcess, first: int, life: Process
    ) -> None:
        super().__init__(run, process, first)
        self._failing, self._life = run, life
        self._messages = run.messages[self.number]
        self._messages.begin(first)

    async def run(self) -> None:
        await super().run()
        self._life.has_finished = True
        self._failing.has_finished(self.number)

    def _receive(self) -> FromScript:
        message = super()._receive()
        self._messages.add(message)
        return message

    def _duration_s(self) -> float:
        self._life.computing = self.iteration, self._kernel.now
        return self._life.stretched(super()._duration_s())

    async def _begin(self, evaluated: bool) -> FollowedIteration:
        await self._life.awake()
        return await super()._begin(evaluated)

    async def _spend(self, duration: Time) -> None:
        await self._life.awake()
        await computed(self._kernel, self._life, duration)
