"""The parameters of workers without servers in virtual time, changed by steps of the script's
optimizer.

A value is the flat parameters, followed by the vector of the model buffers that workers average
(`engine.scripts.buffers`), if there are any. A gradient is followed by its tail
(`engine.scripts.tail`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from outpace.blocks.block import Block, Pieces, StepSettings, Value, value_of, whole
from outpace.blocks.sums import PartialSum, TreeSum, all_finite
from outpace.engine.scripts.layout import places_of
from outpace.engine.scripts.sameness import differing_settings
from outpace.engine.scripts.tail import Settings, Tail, numbers_in
from outpace.optim import Optimizer
from outpace.optim.step import OptimizerState, mean_of
from outpace.optim.torch_optimizers import TorchOptimizer
from outpace.simulation.scripts.messages import Attached
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.without_servers.common import CommonModels
from outpace.simulation.scripts.workload import ScriptWorkload
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import worker_name
from outpace.sync.parameter_block import ParameterBlock, TensorBlock, parameter_block, plus
from outpace.sync.peers.parameters import Common, OptimizerReplica, Replica, Replicas
from outpace.sync.peers.strategy import PeerStrategy

if TYPE_CHECKING:
    from outpace.simulation.peer_parameters import PeerModels
    from outpace.simulation.virtual import VirtualRun


def value_with(parameters: torch.Tensor, buffers: torch.Tensor) -> torch.Tensor | Pieces:
    """Return parameters followed by the vector of averaged model buffers, if there is one."""
    return Pieces([parameters, buffers]) if len(buffers) else parameters


def taken_apart(value: Value, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the parameters in a value, and the vector of averaged model buffers behind them.

    elements: of that vector.
    """
    if isinstance(value, Pieces) and elements:
        flat, buffers = value.parts
        return flat, buffers
    flat = whole(value)  # type: ignore[assignment]  # no phantom
    assert isinstance(flat, torch.Tensor)
    return flat[: len(flat) - elements], flat[len(flat) - elements :]


class OwnStepsBlock:
    """Flat parameters whose steps only the optimizer of a script can take, in its process.

    Has the methods of `TensorBlock` that `ScriptBlock` uses. The state of the optimizer stays in
    the process.

    Args:
        initial: shape (parameters,).
        process: of the script; it must be in `optimizer.step()` when a step is taken.
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


class ScriptBlock:
    """Parameters and model buffers of scripts. Implements `ParameterBlock`.

    Args:
        parameters: takes the steps.
        buffers: the vector of averaged model buffers at the start.
        settings: returns the present settings of the optimizer.
        counts: the model is one worker's own, which takes several steps from one average of its
            buffers to the next.
        leaves_buffers: steps leave the buffers alone.
    """

    def __init__(
        self,
        parameters: TensorBlock | OwnStepsBlock,
        buffers: torch.Tensor,
        tail: Tail,
        settings: Callable[[], Settings],
        *,
        counts: bool = False,
        leaves_buffers: bool = False,
    ) -> None:
        self._tail, self._settings = tail, settings
        self._counts, self._leaves = counts, leaves_buffers
        self._parameters, self._buffers = parameters, buffers.clone()
        self._since = torch.zeros(2 * len(tail.buffers.shapes))  # changes since the last average
        self.optimizer_state = parameters.optimizer_state
        self.load_optimizer_state = parameters.load_optimizer_state
        self._value: torch.Tensor | Pieces | None = None

    @property
    def buffers(self) -> torch.Tensor:
        """The vector of averaged model buffers."""
        return self._buffers

    def keep(self, buffers: torch.Tensor) -> None:
        """Take the buffers that a step leaves behind."""
        if self._leaves:
            return
        if self._counts:
            found, marks = buffers.clone(), len(self._since)
            self._since = self._since + found[:marks]
            found[:marks] = self._since
        else:
            found = self._tail.buffers.settled(buffers, self._buffers)
        self._buffers, self._value = found, None

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        return ""

    def value_of(self, gradient: Block) -> Value:
        return value_of(gradient)

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> bool:
        (flat,), how, buffers = self._tail.cut_off(gradient, self._settings())
        finite = self._parameters.update(flat, divisor, how, progress, factor, count)
        self.keep(buffers)
        self._value = None
        return finite

    def new_sum(self, workers: int) -> PartialSum:
        return TreeSum(workers)

    def read(self) -> torch.Tensor | Pieces:
        if self._value is None:
            found = self._parameters.read()
            assert isinstance(found, torch.Tensor)  # as the gradients are
            self._value = value_with(found, self._buffers)
        return self._value

    def replace(self, parameters: Value) -> None:
        flat, buffers = taken_apart(parameters, len(self._buffers))
        self._parameters.replace(flat)
        self._buffers = buffers.to(self._buffers.dtype)
        self._since = torch.zeros_like(self._since)
        self._value = None

    def set_parameters(self, flat: torch.Tensor) -> None:
        """Replace the parameters, and leave the model buffers."""
        self._parameters.replace(flat)
        self._value = None


def optimizer_of(first: Attached, part: slice) -> TorchOptimizer:
    """Return the script's optimizer for a slice of the flat parameters. Raises ConfigError."""
    places = places_of(first.members, first.layers, part)
    return TorchOptimizer(first.optimizer, places, first.settings)


class ScriptBlocks:
    """Makes parameters whose steps the scripts' own optimizers take. Implements `PeerBlocks`.

    Args:
        optimizer: the run's, for the steps of the strategy itself.

    Attributes:
        tail: of gradients.
        takes_own_steps: True if only the processes of the scripts can take their steps.
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
        self.tail = Tail(len(first.layers), numbers, first.averaged_layout)
        self.exact = (first.averaged_layout if strategy.has_own else self.tail).elements
        self.takes_own_steps = first.takes_steps
        assert first.parameters is not None
        self.size_bytes = first.parameters.nbytes
        buffers = first.averaged.clone()
        buffers[: len(first.averaged_layout.shapes)] = 1  # all workers take these
        self.initial: Value = value_with(first.parameters, buffers)

    def common(self) -> ParameterBlock:
        strategy = self._strategy
        if strategy.has_common and strategy.has_own:  # an outer optimizer of the strategy
            return parameter_block(self.initial, strategy.common_optimizer(self._optimizer))
        return self.new(0, self.common_settings)

    def own(self, worker: int) -> ScriptBlock:
        return self.new(worker, partial(self.settings_of, worker))

    def replicas(self) -> Replicas | None:
        if not self._strategy.uses_replica:
            return None
        if self.first.optimizer == "SGD":
            return Replicas(False, partial(PlainScriptReplica, blocks=self))
        return Replicas(True, self._replica)

    def _replica(self, common: Common) -> Replica:
        block = self.new(0, self.common_settings, leaves_buffers=True)
        return OptimizerReplica(common, block)

    def commons(
        self, models: PeerModels, before: Sequence[ShardState | None]
    ) -> CommonModels | None:
        strategy = self._strategy
        if not strategy.has_common or strategy.has_own or strategy.uses_replica:
            return None
        return CommonModels(models, self, before)

    def flat(self, value: Value) -> torch.Tensor:
        return taken_apart(value_of(value), self.tail.buffers.elements)[0]

    def new(
        self, worker: int, settings: Callable[[], Settings], *, leaves_buffers: bool = False
    ) -> ScriptBlock:
        """Return the parameters at the start, changed by steps of this worker's optimizer."""
        first, counts = self.first, self._strategy.has_own
        initial, buffers = taken_apart(self.initial, self.tail.buffers.elements)
        parameters: OwnStepsBlock | TensorBlock
        if first.takes_steps:
            parameters = OwnStepsBlock(initial, self._processes[worker])
        else:
            parameters = TensorBlock(initial, optimizer_of(first, slice(0, len(initial))))
        block = ScriptBlock(
            parameters, buffers, self.tail, settings, counts=counts, leaves_buffers=leaves_buffers
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

    def common_settings(self) -> Settings:
        """Return the settings of the first worker that still trains."""
        training = (worker for worker in range(self.workers) if not self.has_left(worker))
        return self.settings_of(next(training, 0))

    def warn_of_parting(self, one: int, other: int) -> None:
        """Warn that the parameters of two workers differ from now on."""
        iteration = self._run.totals.iterations.get(one, 1) - 1
        mine, theirs = self.settings_of(one), self.settings_of(other)
        if mine == theirs:
            self._run.warn(
                f"the scripts of {worker_name(one)} and {worker_name(other)} have set parameters "
                f"to different values before the step of iteration {iteration}, so their "
                "parameters differ from now on, also in a real run: set the same on all workers"
            )
            return
        self._run.warn(differing_settings(one, mine, other, theirs, iteration))


class PlainScriptReplica(Replica):
    """A replica that takes plain steps with the learning rates of the script's groups."""

    takes_plain_steps = True

    def __init__(self, common: Common, blocks: ScriptBlocks) -> None:
        super().__init__(common)
        self._tail, self._settings = blocks.tail, blocks.common_settings
        first = blocks.first
        self._groups = places_of(first.members, first.layers, slice(0, sum(first.layers)))

    def step(self, gradient: Value, iteration: int) -> None:
        (flat,), how, _ = self._tail.cut_off(gradient, self._settings())
        direction = torch.zeros_like(flat)
        for group, settings in zip(self._groups, how.groups, strict=True):
            rate = float(settings["lr"]) * (1 if settings.get("maximize") else -1)
            for _, low, high in group:
                direction[low:high] = rate * flat[low:high]
        # The buffers stay: those of the script's model change in commits only.
        value, buffers = taken_apart(self.read(), self._tail.buffers.elements)
        stepped = plus(value, 1, direction)
        assert isinstance(stepped, torch.Tensor)
        self._be(value_with(stepped, buffers))
