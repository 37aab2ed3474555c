"""Runs of a user's script without servers, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from outpace.blocks.block import Block, Pieces, Value, value_of
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.scripts.sameness import differing_settings, without_numbers
from outpace.engine.scripts.tail import Settings, Tail, numbers_in
from outpace.errors import ConfigError
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.simulation.peer_checkpoints import PeerSaving
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.peers import PeerSimulation
from outpace.simulation.scripts.messages import Attached, Stepped
from outpace.simulation.scripts.nodes import ScriptPeer
from outpace.simulation.scripts.runs import ScriptRun
from outpace.simulation.scripts.without_servers.blocks import (
    OwnStepsBlock,
    ScriptBlock,
    ScriptReplicas,
    optimizer_of,
    taken_apart,
    value_with,
)
from outpace.simulation.scripts.without_servers.common import CommonModels
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.checkpoint.workers import state_of_worker
from outpace.sync.messages import worker_name
from outpace.sync.parameter_block import ParameterBlock, TensorBlock, parameter_block
from outpace.sync.peers.parameters import Common, SharedModel
from outpace.tasks import Workload


class ScriptPeerSimulation(ScriptRun, PeerSimulation):
    """A run of a script without servers."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        first, strategy = self._workload.first, experiment.peers
        assert strategy is not None
        numbers = numbers_in(first.settings) if strategy.uses_replica else ()
        self.tail = Tail(len(first.layers), numbers, first.averaged_layout)
        behind = first.averaged_layout if strategy.has_own else self.tail
        self._exact = behind.elements
        # Of each common model: the version at which a state was loaded, and the state before.
        self._before_loading: dict[SharedModel, tuple[int, OptimizerState]] = {}
        # Of the checkpoint from which the run goes on: what each worker had beside the model.
        self._own_before = self._own_states(experiment.workers)
        self._has_differed = False  # workers whose steps use the mean of settings have other ones
        super()._set_up(experiment, workload)

    # -- checkpoints --------------------------------------------------------------------

    def _own_states(self, workers: int) -> Sequence[ShardState | None]:
        if self.resume is None:
            return [None] * workers
        try:
            return self.resume.own_states()
        except OSError as error:
            raise ConfigError(f"{self.resume.path}: {error}") from error

    def _new_saving(self, settings: Checkpoint) -> PeerSaving:
        return PeerSaving(self, self._workload, self._keeper, settings, self._first_value)

    def may_save(
        self, worker: int, iteration: int, pending: PendingIteration | None, *, differs: bool
    ) -> None:
        if self._saving is None or self._models is None or not self._models.are_apart:
            super().may_save(worker, iteration, pending, differs=differs)
            return
        version = self._models.views[worker].version

        def state() -> ShardState:
            model = self._model_of(worker)
            assert model.version == version
            parameters, optimizer, _ = model.state()
            return state_of_worker(worker, iteration, optimizer, parameters=parameters)

        self._saving.gather(worker, self._all_reduces.ended, state)

    def begin_with(self, worker: int, model: SharedModel) -> None:
        """Put the model of a worker into the state that it had at a checkpoint, if any."""
        if self.resume is None:
            return
        restored, own = self.model.state(), self._own_before[worker]
        if own is not None:
            restored = own.parameters, own.optimizer, restored[2]
        model.restore(*restored, self.model.version)

    # -- models ---------------------------------------------------------------------------

    @property
    def first_attached(self) -> Attached:
        """What worker 0 has attached."""
        return self._workload.first

    @cached_property
    def _first_value(self) -> torch.Tensor | Pieces:
        """The value that training starts from; see `without_servers.blocks`."""
        first = self._workload.first
        assert first.parameters is not None
        buffers = first.averaged.clone()
        buffers[: len(first.averaged_layout.shapes)] = 1  # all workers take these
        return value_with(first.parameters, buffers)

    def settings_of(self, worker: int) -> Settings:
        step = self.script_processes[worker].step
        return self._workload.first.settings if step is None else step.settings

    def common_settings(self) -> Settings:
        """Return the settings of the first worker that still trains."""
        training = (process.worker for process in self.script_processes if not process.has_left)
        return self.settings_of(next(training, 0))

    def new_script_block(
        self, worker: int, settings: Callable[[], Settings], *, leaves_buffers: bool = False
    ) -> ScriptBlock:
        """Return the parameters at the start, changed by steps of this worker's optimizer."""
        first, counts = self._workload.first, self._strategy.has_own
        initial, buffers = taken_apart(self._first_value, self.tail.buffers.elements)
        parameters: OwnStepsBlock | TensorBlock
        if first.takes_steps:
            parameters = OwnStepsBlock(initial, self.script_processes[worker])
        else:
            parameters = TensorBlock(initial, optimizer_of(first, slice(0, len(initial))))
        block = ScriptBlock(
            parameters, buffers, self.tail, settings, counts=counts, leaves_buffers=leaves_buffers
        )
        if first.state and not first.takes_steps:
            block.load_optimizer_state(first.state)
        return block

    def _common_block(self) -> ParameterBlock:
        strategy = self._strategy
        if strategy.has_common and strategy.has_own:  # an outer optimizer of the strategy
            return parameter_block(self._first_value, strategy.common_optimizer(self._optimizer))
        return self.new_script_block(0, self.common_settings)

    @cached_property
    def _models(self) -> CommonModels | None:
        """The models that the workers' own optimizers change alike; None if they do not."""
        strategy = self._strategy
        if not strategy.has_common or strategy.has_own or strategy.uses_replica:
            return None
        is_apart = self._workload.first.takes_steps or any(self._own_before)
        return CommonModels(self, strategy, apart=is_apart)

    def trains(self, worker: int) -> bool:
        """True if a worker still takes steps."""
        return worker in self._all_reduces.live and not self.script_processes[worker].has_left

    def committed(self, gradients: int) -> None:
        """Note a commit of the model that is the result, with this number of gradients."""
        self._committed(gradients)

    def warn_of_parting(self, one: int, other: int) -> None:
        iteration = self.totals.iterations.get(one, 1) - 1
        mine, theirs = self.settings_of(one), self.settings_of(other)
        if mine == theirs:
            self.warn(
                f"the scripts of {worker_name(one)} and {worker_name(other)} have set parameters "
                f"to different values before the step of iteration {iteration}, so their "
                "parameters differ from now on, also in a real run: set the same on all workers"
            )
            return
        self.warn(differing_settings(one, mine, other, theirs, iteration))

    def note_step(self, worker: int, step: Stepped) -> None:
        super().note_step(worker, step)
        if not self._strategy.uses_replica or self._has_differed:
            return
        for other, process in enumerate(self.script_processes):
            if process.step is not None and (
                without_numbers(process.step.settings) != without_numbers(step.settings)
            ):
                self._has_differed = True
                self.warn_of_parting(*sorted((worker, other)))
                return

    def parameters_set(self, worker: int, given: Value, now: torch.Tensor) -> None:
        elements = self.tail.buffers.elements
        before, buffers = taken_apart(given, elements)
        if self._models is not None:
            self._models.views[worker].set = value_with(now, buffers)
            return
        own = self._own_block(worker)
        flat, _ = taken_apart(own.read(), elements)
        if not torch.equal(flat, before):  # averaged with another worker meanwhile
            now = flat + (now - before)
        own.set_parameters(now)

    def new_common(self, worker: int) -> Common:
        return super().new_common(worker) if self._models is None else self._models.views[worker]

    def _new_own(self, worker: int) -> ParameterBlock:
        return self.new_script_block(worker, partial(self.settings_of, worker))

    def _replicas(self) -> Any:
        return ScriptReplicas(self) if self._strategy.uses_replica else None

    def _context(self, worker: int) -> SimulatedPeer:
        return ScriptPeer(self, worker)

    def _leave(self, worker: int, after: int | None) -> None:
        super()._leave(worker, after)
        self.left(worker)

    def parameters(self) -> list[Block]:
        (value,) = super().parameters()
        if "_models" in self.__dict__ and self._models is not None:
            value = self._models.result()
        return [taken_apart(value_of(value), self.tail.buffers.elements)[0]]

    def _own_buffers(self, worker: int) -> torch.Tensor | None:
        return self._own_block(worker).buffers if self._strategy.has_own else None

    def _own_block(self, worker: int) -> ScriptBlock:
        block = self.own_block(worker)
        assert isinstance(block, ScriptBlock)
        return block

    def keep_buffers(self, worker: int, buffers: torch.Tensor) -> None:
        """Keep the model buffers after a step without a gradient, as a real worker's model does."""
        if self._strategy.has_own:
            self._own_block(worker).keep(buffers)

    def state_dict(self) -> dict[str, torch.Tensor]:
        found = super().state_dict()
        vector = self._own_buffers(0)
        if vector is not None:  # averaged after the last step of worker 0's script, perhaps
            layout = self.tail.buffers
            for name, piece, is_averaged in zip(
                layout.shapes, layout.of_values(vector), layout.averaged(vector), strict=True
            ):
                if name in found and is_averaged:
                    found[name].copy_(piece.view(found[name].shape))
        return found

    def _model_of(self, worker: int) -> SharedModel:
        """Return the common model whose optimizer takes this worker's steps."""
        return self.model if self._models is None else self._models.views[worker].model

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        """Return a copy of the state with which this worker's steps are taken."""
        if self._strategy.has_own:
            return [self.own_block(worker).optimizer_state()]
        model = self._model_of(worker)
        if model in self._before_loading and not self._decides(worker):
            version, state = self._before_loading[model]
            if (
                version == model.version
            ):  # for real, what another worker loads is its own until then
                return [state]
        return [model.optimizer_state()]

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        """Replace that state. Of a model that workers share, the lowest worker's counts."""
        if self._strategy.has_own:
            self.own_block(worker).load_optimizer_state(state)
        elif self._decides(worker):
            model = self._model_of(worker)
            self._before_loading[model] = model.version, model.optimizer_state()
            model.load_optimizer_state(state)

    def _decides(self, worker: int) -> bool:
        return worker == 0 if self._models is None else self._models.decides(worker)
