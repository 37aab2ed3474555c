"""Scripts without servers in virtual time whose workers fail.

After the loss of a worker all scripts begin again from the last checkpoint, or the others go on,
as in real runs. Where they begin again, a real process takes the place of each script's: it runs
the script from its beginning, with what the script kept at the checkpoint. Starting it takes no
virtual time beside `faults.recovery`.
"""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import Block
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.scripts.anew import REMEDY, LostSince, begin_anew, unrepeated
from outpace.simulation.faults.peer_saving import KeepsLast
from outpace.simulation.faults.peers import FailingPeerSimulation
from outpace.simulation.faults.processes import Process
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.scripts.computing import FailingScriptComputing, FailingScripts
from outpace.simulation.faults.scripts.saving import KeptScriptPeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.scripts.messages import Computes
from outpace.simulation.scripts.nodes import ScriptPeer
from outpace.simulation.scripts.without_servers.run import ScriptPeerSimulation
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


class FailingScriptPeerSimulation(FailingScripts, FailingPeerSimulation, ScriptPeerSimulation):
    """A run of a script without servers and with failures. Implements `Engine`."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        self._lost_since = LostSince()
        super()._set_up(experiment, workload)

    def _new_kept_saving(self, settings: Checkpoint, workload: Workload) -> KeepsLast:
        processes, initial = self._script_processes, self._first_value
        return KeptScriptPeerSaving(self, workload, self._keeper, settings, processes, initial)

    def _context(self, worker: int) -> SimulatedPeer:
        return self._with_script(
            FailingScriptPeer(self, worker, self._new_process(worker_name(worker)))
        )

    def _leave_for_good(self, worker: int) -> None:
        super()._leave_for_good(worker)
        self._script_processes[worker].kill()
        self.left(worker)

    def close(self) -> None:
        super().close()
        if isinstance(self._kept_saving, KeptScriptPeerSaving):
            self._kept_saving.remove_files()

    # -- all workers begin again -----------------------------------------------------

    def _take_back(self, kept: Kept) -> None:
        lost = unrepeated(kept.anew, kept.totals.iterations, self.totals.iterations)
        super()._take_back(kept)
        self._recovery.updates_lost += self._lost_since.then(kept.number, lost)

    def _anew(self) -> int:
        assert self.last_checkpoint is not None
        return len(self.last_checkpoint.anew)

    def _restore_from(self, kept: Kept) -> None:
        self._workload.workers.replace({n: (file, None) for n, file in kept.scripts.items()})
        self._put_back_models(kept.own)
        super()._restore_from(kept)

    def _begin_again(self, kept: Kept) -> None:
        if kept.anew:
            self.warned(f"{begin_anew(kept.anew, 'of the checkpoint')}: {REMEDY}")
        super()._begin_again(kept)


class FailingScriptPeer(FailingScriptComputing, ScriptPeer):
    """The context of a script's worker, whose process may stand still or be slow."""

    def __init__(self, run: FailingScriptPeerSimulation, worker: int, process: Process) -> None:
        super().__init__(run, worker)
        self._process, self._failing = process, run

    async def _begin(self, parameters: Sequence[Block], iteration: int) -> Computes:
        self._process.computing = iteration, self._kernel.now
        self._failing.computes(self.worker, iteration)
        return await super()._begin(parameters, iteration)
