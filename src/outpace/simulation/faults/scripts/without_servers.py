"""Scripts without servers in virtual time whose workers fail.

After the loss of a worker all scripts begin again from the last checkpoint, as in real runs.
"""

from __future__ import annotations

from collections import Counter

from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.scripts.redividing import redivided, script_files
from outpace.simulation.faults.peer_saving import KeepsLast
from outpace.simulation.faults.peers import FailingPeerSimulation
from outpace.simulation.faults.processes import Process
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.scripts.beginning_again import BeginAgain
from outpace.simulation.faults.scripts.noted_states import Noted
from outpace.simulation.faults.scripts.noting import NotedComputing, NotedScripts
from outpace.simulation.faults.scripts.saving import KeptScriptPeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.scripts.nodes import ScriptPeer
from outpace.simulation.scripts.without_servers.run import ScriptPeerSimulation
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


class FailingScriptPeerSimulation(
    NotedScripts, BeginAgain, FailingPeerSimulation, ScriptPeerSimulation
):
    """A run of a script without servers and with failures. Implements `Engine`."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        first = [Noted(0, None)] * experiment.workers
        if self.resume is not None:
            files, others = script_files(self.resume), redivided(self.resume)
            first = [Noted(n, files.get(w), others) for w, n in enumerate(self.resume.first)]
        self._set_up_notes(first, is_noted=False)
        super()._set_up(experiment, workload)

    def _new_kept_saving(self, settings: Checkpoint, workload: Workload) -> KeepsLast:
        keeper, processes = self._keeper, self._script_processes
        initial = self._first_value
        return KeptScriptPeerSaving(self, workload, keeper, settings, processes, initial)

    def _context(self, worker: int) -> SimulatedPeer:
        return self._with_script(
            FailingScriptPeer(self, worker, self._new_process(worker_name(worker)))
        )

    def _leave_for_good(self, worker: int) -> None:
        super()._leave_for_good(worker)
        self._script_processes[worker].kill()
        self.left(worker)

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
        super()._begin_again(kept)


class FailingScriptPeer(NotedComputing, ScriptPeer):
    """The context of a script's worker, whose process may stand still, be slow, or be a new one."""

    _failing: FailingScriptPeerSimulation

    def __init__(self, run: FailingScriptPeerSimulation, worker: int, process: Process) -> None:
        super().__init__(run, worker)
        self._process, self._failing = process, run
