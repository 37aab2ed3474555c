"""Runs of a user's script with servers, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.scripts.layout import places_of
from outpace.engine.scripts.optimizer_state import cut
from outpace.engine.servers import AbortableProgram, has_scheduler, leaves_behind
from outpace.optim.python import PythonOptimizer
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.simulation.scripts.nodes import ScriptLeft, ScriptWorkerNode
from outpace.simulation.scripts.runs import ScriptRun
from outpace.simulation.scripts.without_servers.blocks import optimizer_of
from outpace.simulation.servers import Simulation
from outpace.sync.messages import SCHEDULER, Leave, Pause
from outpace.sync.parameter_block import ParameterBlock, parameter_block
from outpace.tasks import Workload


class ScriptSimulation(ScriptRun, Simulation):
    """A run of a script with servers."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        first = self._workload.first
        self._places = [
            places_of(first.members, first.layers, part) for part in self._workload.slices
        ]
        self._blocks: dict[int, ParameterBlock] = {}  # by server
        self._nodes: dict[int, ScriptWorkerNode] = {}  # by worker
        self._tells_pauses = leaves_behind(experiment)
        self._is_at_limit = False  # True once a worker has come to stop.iterations
        super()._set_up(experiment, workload)
        if first.state and self.resume is None:
            self.load_optimizer_state(0, first.state)

    def _block(self, server: int, initial: Block) -> ParameterBlock:
        first, optimizer = self._workload.first, self.experiment.optimizer
        if isinstance(optimizer, PythonOptimizer):
            made = optimizer.of_groups(self._places[server], first.settings)
        else:
            made = optimizer_of(first, self._workload.slices[server])
        block = parameter_block(initial, made, layers=self._layers_of[server])
        self._blocks[server] = block
        return block

    async def _train(self, train: AbortableProgram, worker: int, first: int | None) -> None:
        node = self._nodes[worker] = ScriptWorkerNode(self, worker, self._servers, first)
        has_ended = False
        try:
            if node.process.had_ended:
                node.process.await_left()
                raise ScriptLeft
            await train(node)
            self._is_at_limit = True
        except ScriptLeft:  # the program sends nothing more
            has_ended = True
            for name in self._listeners(node):
                node.send(name, Leave(worker))
        self.left(worker)
        if self._saving is not None:
            self._saving.leave(worker, node.pushed, ended=has_ended)

    def _listeners(self, node: ScriptWorkerNode) -> list[str]:
        """Return the servers, and the scheduler if there is one."""
        return [*node.servers, *[SCHEDULER] * has_scheduler(self.experiment)]

    def _tell(self, worker: int, message: Pause) -> None:
        node = self._nodes[worker]
        for name in self._listeners(node) if self._tells_pauses else ():
            node.send(name, message)

    def _note_end_of(self, worker: int) -> None:
        # Late workers have taken fewer steps of their scripts at stop.iterations, and so never join
        # the collectives in which others may wait for them.
        if self._tells_pauses and self._is_at_limit:
            self.collectives.end(worker)
        else:
            super()._note_end_of(worker)

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        """Return a copy of the state that each server has now."""
        return [self._blocks[server].optimizer_state() for server in sorted(self._blocks)]

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        """Give the servers the state that worker 0 has loaded."""
        if worker == 0:
            starts = self._workload.starts
            for server, (places, part) in enumerate(
                zip(self._places, self._workload.slices, strict=True)
            ):
                self._blocks[server].load_optimizer_state(cut(state, places, part, starts))
