"""The parameters of workers without servers in virtual time, changed by steps of the script's
optimizer. For values and gradients see `engine.scripts.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import torch

from outpace.blocks.block import StepSettings, Value, value_of, whole
from outpace.blocks.sums import all_finite
from outpace.engine.scripts.blocks import (
    ScriptBlock,
    replicas_of_scripts,
    taken_apart,
    value_with,
)
from outpace.engine.scripts.layout import places_of
from outpace.engine.scripts.sameness import differing_settings
from outpace.engine.scripts.trailer import Settings, Trailer, numbers_in
from outpace.errors import ConfigError
from outpace.optim import Optimizer
from outpace.optim.step import OptimizerState, mean_of
from outpace.optim.torch_optimizers import TorchOptimizer
from outpace.simulation.scripts.messages import Attached
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.workers import ScriptWorkload
from outpace.sync.messages import worker_name
from outpace.sync.parameter_block import (
    ParameterBlock,
    SteppedParameters,
    TensorBlock,
    parameter_block,
)
from outpace.sync.peers.parameters import Replicas
from outpace.sync.peers.strategy import PeerStrategy

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun

_ONE_MODEL: Final = "as virtual time has one model for all"


class OwnStepsBlock:
    """Flat parameters whose steps only the optimizer of a script can take, in its process.

    Implements `SteppedParameters`. The state of the optimizer remains in the process.

    Args:
        initial: shape (parameters,).
        process: process of the script; it must be in `optimizer.step()` when a step is taken.
    """

    def __init__(self, initial: torch.Tensor, process: ScriptProcess) -> None:
        self._parameters, self._process = initial.clone(), process

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> bool:
        assert isinstance(gradient, torch.Tensor)
        assert settings is not None
        assert factor == 1, "strategies with replicas refuse such an optimizer"
        mean = mean_of(gradient, divisor * count)
        self._parameters = self._process.take_step(self._parameters, mean, settings.unused)
        return all_finite(self._parameters)

    def read(self) -> torch.Tensor:
        return self._parameters

    def replace(self, parameters: Value) -> None:
        found = whole(parameters)
        assert isinstance(found, torch.Tensor)
        self._parameters = found

    def optimizer_state(self) -> OptimizerState:
        return {}

    def load_optimizer_state(self, state: OptimizerState) -> None:
        assert not state


def optimizer_of(first: Attached, part: slice) -> TorchOptimizer:
    """Return the script's optimizer for a slice of the flat parameters. Raises ConfigError."""
    places = places_of(first.members, first.layers, part)
    return TorchOptimizer(first.optimizer, places, first.settings)


class ScriptBlocks:
    """Makes parameters whose steps the scripts' own optimizers take. Implements `PeerBlocks`.

    Args:
        optimizer: the run's optimizer, for the steps of the strategy itself.

    Attributes:
        trailer: trailer of gradients.
        set: by worker, the parameters of the common model as its script has set them since the
            last commit.
    """

    def __init__(
        self,
        run: VirtualRun,
        workload: ScriptWorkload,
        strategy: PeerStrategy,
        optimizer: Optimizer,
    ) -> None:
        self._run, self._strategy, self._optimizer = run, strategy, optimizer
        self.workers = run.experiment.workers
        self.first = first = workload.first
        self._processes = workload.workers.processes
        numbers = numbers_in(first.settings) if strategy.uses_replica else ()
        self.trailer = Trailer(len(first.layers), numbers, first.averaged_layout)
        self.exact = (first.averaged_layout if strategy.has_own else self.trailer).elements
        self.set: dict[int, torch.Tensor] = {}
        assert first.parameters is not None
        self.size_bytes = first.parameters.nbytes
        buffers = first.averaged.clone()
        buffers[: len(first.averaged_layout.shapes)] = 1  # parameters that all workers have set
        self.initial: Value = value_with(first.parameters, buffers)

    def common(self) -> ParameterBlock:
        strategy = self._strategy
        # the step of an outer optimizer of the strategy
        if strategy.has_common and strategy.has_own:
            return parameter_block(self.initial, strategy.common_optimizer(self._optimizer))
        before = self._begin_commit if strategy.averages_gradients else lambda _: None
        return self.new(0, self.common_settings, before_step=before)

    def own(self, worker: int) -> ScriptBlock:
        return self.new(worker, partial(self.settings_of, worker))

    def replicas(self) -> Replicas | None:
        if not self._strategy.uses_replica:
            return None
        first, settings = self.first, self.common_settings
        return replicas_of_scripts(
            first.optimizer,
            places_of(first.members, first.layers, slice(0, sum(first.layers))),
            self.trailer,
            settings,
            partial(self.new, 0, settings, leaves_buffers=True),
        )

    def flat(self, value: Value) -> torch.Tensor:
        if self.set:
            return self.set[min(self.set)]
        return taken_apart(value_of(value), self.trailer.buffers.elements)[0]

    def _begin_commit(self, common: ScriptBlock) -> None:
        """Set the common model to the parameters that all scripts have set, if they have.

        Raises:
            ConfigError: if workers would take different steps, because there is one model for all.
        """
        training = [n for n in range(self.workers) if not self.has_left(n)]
        first, *others = training or [0]
        mine = self.set.get(first)
        for other in others:
            if self.settings_of(first) != self.settings_of(other):
                raise ConfigError(f"{self.difference(first, other)}, {_ONE_MODEL}")
            theirs = self.set.get(other)
            is_same = mine is theirs or (
                mine is not None and theirs is not None and torch.equal(mine, theirs)
            )
            if not is_same:
                raise ConfigError(
                    f"the scripts of {worker_name(first)} and {worker_name(other)} have set "
                    "parameters to different values, so their models would differ from then on, "
                    f"also in a real run: set the same on all workers, {_ONE_MODEL}"
                )
        if mine is not None:
            common.set_parameters(mine)
        self.set.clear()

    def new(
        self,
        worker: int,
        settings: Callable[[], Settings],
        *,
        leaves_buffers: bool = False,
        before_step: Callable[[ScriptBlock], None] = lambda _: None,
    ) -> ScriptBlock:
        """Return the initial parameters, with this worker's optimizer for their steps."""
        first, counts = self.first, self._strategy.has_own
        initial, buffers = taken_apart(self.initial, self.trailer.buffers.elements)
        parameters: SteppedParameters
        if first.takes_steps:
            parameters = OwnStepsBlock(initial, self._processes[worker])
        else:
            parameters = TensorBlock(initial, optimizer_of(first, slice(0, len(initial))))
        block = ScriptBlock(
            parameters,
            buffers,
            self.trailer,
            settings,
            counts=counts,
            leaves_buffers=leaves_buffers,
            before_step=before_step,
        )
        if first.state and not first.takes_steps:
            block.load_optimizer_state(first.state)
        return block

    def has_left(self, worker: int) -> bool:
        """True if the script of a worker takes no more steps."""
        return self._processes[worker].has_left

    def settings_of(self, worker: int) -> Settings:
        """Return the settings of a worker's optimizer in its last step."""
        step = self._processes[worker].step
        return self.first.settings if step is None else step.settings

    @property
    def first_training(self) -> int:
        """The first worker that still trains; 0 if none does."""
        return next((n for n in range(self.workers) if not self.has_left(n)), 0)

    def common_settings(self) -> Settings:
        """Return the settings of the first worker that still trains."""
        return self.settings_of(self.first_training)

    def difference(self, one: int, other: int) -> str:
        """Describe how the settings of two workers differ."""
        iteration = self._run.totals.iterations.get(one, 1) - 1
        mine, theirs = self.settings_of(one), self.settings_of(other)
        return differing_settings(one, mine, other, theirs, iteration)
