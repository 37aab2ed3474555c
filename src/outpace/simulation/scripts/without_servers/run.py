"""Runs of a user's script without servers, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.peers import PeerSimulation
from outpace.simulation.scripts.nodes import ScriptPeer
from outpace.simulation.scripts.runs import ScriptRun
from outpace.simulation.scripts.without_servers.blocks import (
    ScriptBlock,
    ScriptReplicas,
    Settings,
    Tail,
    optimizer_of,
)
from outpace.simulation.scripts.without_servers.common import CommonModels
from outpace.simulation.scripts.without_servers.own_steps import OwnStepsBlock
from outpace.sync.messages import worker_name
from outpace.sync.parameter_block import ParameterBlock, TensorBlock, parameter_block
from outpace.sync.peers.parameters import Common, SharedModel
from outpace.tasks import Workload


class ScriptPeerSimulation(ScriptRun, PeerSimulation):
    """A run of a script without servers."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        first, strategy = self._workload.first, experiment.peers
        assert strategy is not None
        self._tail = Tail(
            size=self._workload.size,
            tensors=len(first.layers),
            numbers=first.numbers if strategy.uses_replica else (),
            buffers=first.averaged.numel(),
        )
        self._exact = 0 if strategy.has_own else self._tail.elements
        # Of each common model: the version at which a state was loaded, and the state before.
        self._before_loading: dict[SharedModel, tuple[int, OptimizerState]] = {}
        super()._set_up(experiment, workload)

    @cached_property
    def _first_value(self) -> torch.Tensor:
        """The parameters that training starts from, followed by the averaged model buffers."""
        first = self._workload.first
        assert first.parameters is not None
        return torch.cat([first.parameters, first.averaged])

    def _settings_of(self, worker: int) -> Settings:
        step = self._processes[worker].step
        return self._workload.first.settings if step is None else step.settings

    def _common_settings(self) -> Settings:
        """Return the settings of the first worker that still trains."""
        training = (process.worker for process in self._processes if not process.has_left)
        return self._settings_of(next(training, 0))

    def _new_script_block(self, worker: int, settings: Callable[[], Settings]) -> ScriptBlock:
        """Return the parameters at the start, changed by steps of this worker's optimizer."""
        first, size = self._workload.first, self._workload.size
        initial = self._first_value
        if first.takes_steps:
            own = OwnStepsBlock(initial[:size], self._processes[worker])
            return ScriptBlock(own, initial[size:], self._tail, settings)
        parameters = TensorBlock(initial[:size], optimizer_of(first, slice(0, size)))
        block = ScriptBlock(parameters, initial[size:], self._tail, settings)
        if first.state:
            block.load_optimizer_state(first.state)
        return block

    def _common_block(self) -> ParameterBlock:
        strategy = self._strategy
        if strategy.has_common and strategy.has_own:  # an outer optimizer of the strategy
            return parameter_block(self._first_value, strategy.common_optimizer(self._optimizer))
        return self._new_script_block(0, self._common_settings)

    @cached_property
    def _models(self) -> CommonModels | None:
        """The models that the workers' own optimizers change alike; None if they do not."""
        strategy, processes = self._strategy, self._processes
        if not strategy.has_common or strategy.has_own or strategy.uses_replica:
            return None

        def choose(model: SharedModel) -> None:
            self.model = model

        return CommonModels(
            self.experiment.workers,
            self._new_script_block,
            apart=self._workload.first.takes_steps,
            splits=strategy.averages_gradients,
            settings=self._settings_of,
            trains=lambda worker: worker not in self._left and not processes[worker].has_left,
            chosen=choose,
            committed=self._committed,
            parted=self._warn_of_parting,
        )

    def _warn_of_parting(self, one: int, other: int) -> None:
        found = [
            f"{key} {value} and {others[key]}"
            for group, others in zip(self._settings_of(one), self._settings_of(other), strict=True)
            for key, value in group.items()
            if value != others[key]
        ]
        iteration = self.totals.iterations.get(one, 1) - 1
        self.warn(
            f"the optimizers of {worker_name(one)} and {worker_name(other)} have different "
            f"settings in iteration {iteration} ({'; '.join(found)}), so "
            "their parameters differ from now on, also in a real run: give the schedulers of all "
            "workers the same values, or use a strategy with servers"
        )

    def new_common(self, worker: int) -> Common:
        return super().new_common(worker) if self._models is None else self._models.views[worker]

    def _new_own(self, worker: int) -> ParameterBlock:
        return self._new_script_block(worker, partial(self._settings_of, worker))

    def _replicas(self) -> Any:
        if not self._strategy.uses_replica:
            return None
        return ScriptReplicas(
            self._workload.first,
            self._tail,
            partial(self._new_script_block, 0, self._common_settings),
            self._common_settings,
        )

    def _context(self, worker: int) -> SimulatedPeer:
        peer = ScriptPeer(self, worker)
        self._connect(peer)
        peer.tail, peer.keep_buffers = self._tail, self._keep_buffers
        return peer

    def _leave(self, worker: int) -> None:
        super()._leave(worker)
        self.left(worker)

    def parameters(self) -> list[Block]:
        (value,) = super().parameters()
        assert isinstance(value, torch.Tensor)
        return [value[: self._workload.size]]

    @property
    def _finds_buffers(self) -> bool:  # type: ignore[override]
        return self._strategy.has_own

    def _values(self, worker: int) -> Sequence[Block]:
        if self._finds_buffers:
            return [*self.parameters(), self._own_block(worker).buffers]
        return self.parameters()

    def _own_block(self, worker: int) -> ScriptBlock:
        block = self.own_block(worker)
        assert isinstance(block, ScriptBlock)
        return block

    def _keep_buffers(self, worker: int, buffers: torch.Tensor) -> None:
        """Keep the model buffers after a step without a gradient, as a real worker's model does."""
        if self._strategy.has_own:
            self._own_block(worker).buffers = buffers[: self._tail.buffers]

    def state_dict(self) -> dict[str, torch.Tensor]:
        found = super().state_dict()
        if self._strategy.has_own:  # averaged after the last step of worker 0's script, perhaps
            first = self._workload.first
            pieces = torch.split(self._own_block(0).buffers, list(first.averaged_names.values()))
            for name, piece in zip(first.averaged_names, pieces, strict=True):
                if name in found:
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
