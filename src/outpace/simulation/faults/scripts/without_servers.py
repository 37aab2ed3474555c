"""Scripts without servers in virtual time whose workers fail.

After the loss of a worker all scripts begin again from the last checkpoint, or the others go on,
as in real runs. Where a worker comes back alone, its script begins with what it had kept at its
first iteration or before, and computes the iterations in between again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from outpace.blocks.block import Block
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.scripts.redividing import redivided, script_files
from outpace.engine.worker_losses import comes_back_alone
from outpace.simulation.faults.peer_saving import KeepsLast
from outpace.simulation.faults.peers import FailingPeerSimulation
from outpace.simulation.faults.processes import Process
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.scripts.beginning_again import BeginAgain
from outpace.simulation.faults.scripts.noted_states import Noted
from outpace.simulation.faults.scripts.noting import NotedComputing, NotedScripts
from outpace.simulation.faults.scripts.saving import KeptScriptPeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.scripts.messages import Computes
from outpace.simulation.scripts.nodes import ScriptPeer
from outpace.simulation.scripts.without_servers.run import ScriptPeerSimulation
from outpace.support.units import Time
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


class FailingScriptPeerSimulation(
    NotedScripts, BeginAgain, FailingPeerSimulation, ScriptPeerSimulation
):
    """A run of a script without servers and with failures. Implements `Engine`.

    Attributes:
        repeating: workers whose scripts compute iterations again.
    """

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        first = [Noted(0, None)] * experiment.workers
        if self.resume is not None:
            files, others = script_files(self.resume), redivided(self.resume)
            first = [Noted(n, files.get(w), others) for w, n in enumerate(self.resume.first)]
        wants_restart = experiment.on_worker_loss == "restart"
        self._set_up_notes(first, is_noted=wants_restart and comes_back_alone(experiment))
        self._saved_first = [each.iteration for each in first]  # at the last checkpoint
        self.repeating: set[int] = set()
        super()._set_up(experiment, workload)

    def _new_kept_saving(self, settings: Checkpoint, workload: Workload) -> KeepsLast:
        keeper, processes = self._keeper, self._script_processes
        initial = self._first_value
        return LoneScriptSaving(self, workload, keeper, settings, processes, initial)

    def _context(self, worker: int) -> SimulatedPeer:
        return self._with_script(
            FailingScriptPeer(self, worker, self._new_process(worker_name(worker)))
        )

    def _leave_for_good(self, worker: int) -> None:
        super()._leave_for_good(worker)
        self._script_processes[worker].kill()
        self.left(worker)

    # -- workers that come back alone ------------------------------------------------

    def _can_give(self, worker: int, besides: int | None = None) -> bool:
        return worker not in self.noted.anew and super()._can_give(worker, besides)

    def _goes_on_alone(self, context: SimulatedPeer) -> None:
        assert isinstance(context, FailingScriptPeer)
        worker, first = context.worker, context.first_iteration
        noted = self.noted.go_back(worker, first)
        assert noted.iteration <= first, "the checkpoint before the last is not ahead of the model"
        self._workload.workers.replace({worker: (noted.kept, noted.redivided)})
        self._known_logs[worker] = self._logs[worker] - noted.logged
        self._with_script(context)
        context.again = range(noted.iteration, first)
        if context.again:
            self.repeating.add(worker)

    def computes_again(self, worker: int, iteration: int | None) -> None:
        super().computes_again(worker, iteration)
        if iteration is None:
            self.repeating.discard(worker)

    def checkpoint_written(self, taken: Time, still: Time = 0) -> None:
        super().checkpoint_written(taken, still)
        assert self.last_checkpoint is not None
        # The model has all that was before the checkpoint before, and not yet all before this one.
        self.noted.checkpoint(self._saved_first)
        self._saved_first = list(self.last_checkpoint.first)

    # -- all workers begin again -----------------------------------------------------

    def _restore_from(self, kept: Kept) -> None:
        self._replace_scripts(kept)
        self._put_back_models(kept.own)
        super()._restore_from(kept)

    def _begin_again(self, kept: Kept) -> None:
        self._warn_of_anew(kept)
        logs = Counter(kept.metrics["worker"].to_pylist())
        first = enumerate(kept.first)
        back = [Noted(n, kept.scripts.get(each), kept.redivided, logs[each]) for each, n in first]
        self.noted.close()
        self._set_up_notes(back, is_noted=self._is_noted)
        self._logs.update(logs)
        self._saved_first = list(kept.first)
        self.repeating.clear()
        super()._begin_again(kept)


class LoneScriptSaving(KeptScriptPeerSaving):
    """Takes no checkpoint while a worker is away, or its script behind the model."""

    _failing: FailingScriptPeerSimulation

    @property
    def _can_begin(self) -> bool:
        return super()._can_begin and not (self._failing.away or self._failing.repeating)

    def give_up(self) -> None:
        is_open = self._open is not None or self._written_in is not None or self._scripts.is_open
        self._scripts.abandon()
        self._give_up()
        self._is_due = self._is_due or is_open


class FailingScriptPeer(NotedComputing, ScriptPeer):
    """The context of a script's worker, whose process may stand still, be slow, or be a new one."""

    _failing: FailingScriptPeerSimulation

    def __init__(self, run: FailingScriptPeerSimulation, worker: int, process: Process) -> None:
        super().__init__(run, worker)
        self._process, self._failing = process, run

    async def _begin(self, parameters: Sequence[Block], iteration: int) -> Computes:
        self._failing.computes(self.worker, iteration)
        return await super()._begin(parameters, iteration)
