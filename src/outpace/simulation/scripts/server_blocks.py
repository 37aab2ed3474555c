"""The parameters of servers that scripts train, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.engine.scripts.layout import places_of
from outpace.engine.scripts.optimizer_state import cut
from outpace.optim.python import PythonOptimizer
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.simulation.scripts.body import ScriptModels
from outpace.simulation.scripts.step import Step
from outpace.simulation.scripts.without_servers.blocks import optimizer_of
from outpace.simulation.scripts.workload import ScriptWorkload
from outpace.simulation.virtual import VirtualRun
from outpace.sync.parameter_block import ParameterBlock, parameter_block


class ServerBlocks(ScriptModels):
    """The blocks of all servers, whose steps the script's optimizer takes."""

    def __init__(self, run: VirtualRun, workload: ScriptWorkload) -> None:
        first, self._slices = workload.first, workload.slices
        self._first, self._workload, self._run = first, workload, run
        self._places = [places_of(first.members, first.layers, part) for part in self._slices]
        self._blocks: dict[int, ParameterBlock] = {}  # by server

    def new(self, server: int, initial: Block) -> ParameterBlock:
        """Return the parameters of a server, given its initial ones."""
        first, optimizer = self._first, self._run.experiment.optimizer
        if isinstance(optimizer, PythonOptimizer):
            made = optimizer.of_groups(self._places[server], first.settings)
        else:
            made = optimizer_of(first, self._slices[server])
        layers = layers_within(self._slices[server], first.layers)
        block = self._blocks[server] = parameter_block(initial, made, layers=layers)
        if first.state and self._run.resume is None:
            self._load(server, first.state)
        return block

    def _load(self, server: int, state: Mapping[int, State]) -> None:
        starts, part = self._workload.starts, self._slices[server]
        self._blocks[server].load_optimizer_state(cut(state, self._places[server], part, starts))

    def gradient(self, worker: int, step: Step) -> Sequence[Block | None]:
        if step.gradient is None:
            return [None] * len(self._slices)
        return step.gradient.blocks(self._slices)

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        """Return a copy of the state that each server has now."""
        return [self._blocks[server].optimizer_state() for server in sorted(self._blocks)]

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        """Give the servers the state that worker 0 has loaded."""
        for server in sorted(self._blocks) if worker == 0 else ():
            self._load(server, state)
