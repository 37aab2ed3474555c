"""Scripts without servers in virtual time whose workers fail.

After the loss of a worker all scripts begin again from the last checkpoint, or the others go on,
as in real runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import Block
from outpace.config.checkpoint import Checkpoint
from outpace.simulation.faults.peer_saving import KeepsLast
from outpace.simulation.faults.peers import FailingPeerSimulation
from outpace.simulation.faults.processes import Process
from outpace.simulation.faults.saving import Kept
from outpace.simulation.faults.scripts.beginning_again import BeginAgain
from outpace.simulation.faults.scripts.computing import FailingScriptComputing
from outpace.simulation.faults.scripts.saving import KeptScriptPeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.scripts.messages import Computes
from outpace.simulation.scripts.nodes import ScriptPeer
from outpace.simulation.scripts.without_servers.run import ScriptPeerSimulation
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


class FailingScriptPeerSimulation(BeginAgain, FailingPeerSimulation, ScriptPeerSimulation):
    """A run of a script without servers and with failures. Implements `Engine`."""

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

    def _restore_from(self, kept: Kept) -> None:
        self._replace_scripts(kept)
        self._put_back_models(kept.own)
        super()._restore_from(kept)

    def _begin_again(self, kept: Kept) -> None:
        self._warn_of_anew(kept)
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
