"""The models that scripts train, stored at servers or at the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

from outpace.blocks.block import Block, Deferred, Pieces, Value
from outpace.blocks.slicing import layers_within
from outpace.engine.scripts.blocks import ScriptBlock, taken_apart
from outpace.engine.scripts.layout import places_of
from outpace.engine.scripts.optimizer_state import cut
from outpace.engine.scripts.sameness import without_numbers
from outpace.engine.scripts.trailer import Trailer
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.simulation.peer_parameters import PeerModels
from outpace.simulation.scripts.blocks import ScriptBlocks, optimizer_of
from outpace.simulation.scripts.host import ScriptModels
from outpace.simulation.scripts.messages import Stepped
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.shared_memory import StepGradient
from outpace.simulation.scripts.workers import ScriptWorkload
from outpace.simulation.virtual import VirtualRun
from outpace.sync.parameter_block import ParameterBlock, parameter_block


class ServerModels(ScriptModels):
    """The blocks of all servers, with the script's optimizer for their steps."""

    def __init__(self, run: VirtualRun, workload: ScriptWorkload) -> None:
        first, self._slices = workload.first, workload.slices
        self._first, self._workload, self._run = first, workload, run
        self._places = [places_of(first.members, first.layers, part) for part in self._slices]
        self._blocks: dict[int, ParameterBlock] = {}  # by server

    def new(self, server: int, initial: Block) -> ParameterBlock:
        """Return the parameters of a server, given its initial ones."""
        first = self._first
        made = optimizer_of(first, self._slices[server])
        layers = layers_within(self._slices[server], first.layers)
        block = self._blocks[server] = parameter_block(initial, made, layers=layers)
        if first.state and self._run.resume is None:
            self._load(server, first.state)
        return block

    def _load(self, server: int, state: Mapping[int, State]) -> None:
        starts, part = self._workload.starts, self._slices[server]
        self._blocks[server].load_optimizer_state(cut(state, self._places[server], part, starts))

    def gradient(
        self, worker: int, step: Stepped, flat: StepGradient | None
    ) -> Sequence[Block | None]:
        if flat is None:
            return [None] * len(self._slices)
        return flat.blocks(self._slices)

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        """Return a copy of the state that each server has now."""
        return [self._blocks[server].optimizer_state() for server in sorted(self._blocks)]

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        """Give the servers the state that worker 0 has loaded."""
        for server in sorted(self._blocks) if worker == 0 else ():
            self._load(server, state)


class PeerScriptModels(ScriptModels):
    """The models of scripts without servers, which the processes of the scripts read and change."""

    def __init__(
        self,
        run: VirtualRun,
        models: PeerModels,
        blocks: ScriptBlocks,
        processes: Sequence[ScriptProcess],
    ) -> None:
        self._run, self._models, self._blocks, self._processes = run, models, blocks, processes
        self._strategy, self._trailer = models.strategy, blocks.trailer
        # if steps use the mean of settings, workers may have different ones
        self._has_differed = False

    def gradient(
        self, worker: int, step: Stepped, flat: StepGradient | None
    ) -> Sequence[Block | None]:
        # The script is in its step, so the vector next to the gradient has not been overwritten.
        buffers = self._processes[worker].computed_buffers.clone()
        if flat is None:
            if self._strategy.has_own:  # the model buffers are kept, as in a real worker's model
                self._own_block(worker).keep(buffers)
            return [None]
        trailer = self._trailer
        made = partial(_with_trailer, trailer, flat, step, buffers)
        found = Deferred(flat.elements + trailer.elements, flat.dtype, made)
        found.nbytes += trailer.elements * (trailer.dtype.itemsize - flat.dtype.itemsize)
        return [found]

    def note_step(self, worker: int, step: Stepped) -> None:
        if not self._strategy.uses_replica or self._has_differed:
            return
        for other, process in enumerate(self._processes):
            if process.step is not None and (
                without_numbers(process.step.settings) != without_numbers(step.settings)
            ):
                self._has_differed = True
                self._run.warn(self._blocks.difference(*sorted((worker, other))))
                return

    def parameters_set(self, worker: int, given: Value, now: torch.Tensor) -> None:
        elements = self._trailer.buffers.elements
        before, _ = taken_apart(given, elements)
        if not self._strategy.has_own:
            self._blocks.set[worker] = now
            return
        own = self._own_block(worker)
        flat, _ = taken_apart(own.read(), elements)
        if not torch.equal(flat, before):  # averaged with another worker in the meantime
            now = flat + (now - before)
        own.set_parameters(now)

    def buffers(self, worker: int) -> torch.Tensor | None:
        return self._own_block(worker).buffers if self._strategy.has_own else None

    def put_buffers(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        vector = self.buffers(0)
        if vector is None:
            return
        # they may have been averaged after the last step of worker 0's script
        layout = self._trailer.buffers
        for name, piece, is_averaged in zip(
            layout.shapes, layout.of_values(vector), layout.averaged(vector), strict=True
        ):
            if name in state_dict and is_averaged:
                state_dict[name].copy_(piece.view(state_dict[name].shape))

    def _own_block(self, worker: int) -> ScriptBlock:
        block = self._models.own_block(worker)
        assert isinstance(block, ScriptBlock)
        return block

    # -- the state of the optimizer ---------------------------------------------------------

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        """Return a copy of the state with which this worker's steps are taken."""
        if self._strategy.has_own:
            return [self._own_block(worker).optimizer_state()]
        return [self._models.model.optimizer_state()]

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        """Replace the optimizer's state; a common one only for the first training worker."""
        if self._strategy.has_own:
            self._own_block(worker).load_optimizer_state(state)
        elif worker == self._blocks.first_training:
            self._models.model.load_optimizer_state(state)


def _with_trailer(
    trailer: Trailer, gradient: StepGradient, step: Stepped, buffers: torch.Tensor
) -> Pieces:
    return trailer.appended([gradient.read()], set(step.unused), step.settings, buffers)
