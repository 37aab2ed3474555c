"""The parameters of workers without servers in virtual time, changed by steps of the script's
optimizer.

A value is the flat parameters, followed by the model buffers that workers average. A gradient is
followed by its tail, so that whatever is done to it, sums and means, is done to all of these:

- 1, so that the sum of several gradients says how many they are;
- for each parameter, 1 if the worker has a gradient of it, else 0. The step leaves a parameter
  alone for which no worker has one, as the optimizer would;
- where replicas take steps, the optimizer's settings that are numbers: workers at different
  iterations may have others, and the step uses the mean over the gradients;
- the model buffers that workers average.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from outpace.blocks.block import Block, StepSettings, Value, whole
from outpace.blocks.sums import PartialSum, TreeSum
from outpace.engine.scripts.layout import places_of
from outpace.optim.torch_optimizers import TorchOptimizer
from outpace.simulation.scripts.messages import Attached, Stepped
from outpace.simulation.scripts.without_servers.own_steps import OwnStepsBlock
from outpace.sync.parameter_block import TensorBlock, plus
from outpace.sync.peers.parameters import Common, OptimizerReplica, Replica

Settings: TypeAlias = list[dict[str, Any]]  # of each parameter group


@dataclass(frozen=True, slots=True)
class Tail:
    """The layout of values and gradients.

    Attributes:
        size: number of parameters.
        tensors: number of parameter tensors.
        numbers: (group, name) of each setting that travels.
        buffers: number of elements of the model buffers that workers average.
    """

    size: int
    tensors: int
    numbers: Sequence[tuple[int, str]]
    buffers: int

    @property
    def elements(self) -> int:
        """Number of elements behind a gradient."""
        return 1 + self.tensors + len(self.numbers) + self.buffers

    def behind(self, flat: torch.Tensor, step: Stepped) -> torch.Tensor:
        """Return a gradient with its tail. flat: the gradient, followed by the model buffers."""
        unused = set(step.unused)
        used = [float(number not in unused) for number in range(self.tensors)]
        settings = [float(step.settings[group][name]) for group, name in self.numbers]
        tail = flat.new_tensor([1.0, *used, *settings])
        return torch.cat([flat[: self.size], tail, flat[self.size :]])

    def cut_off(
        self, gradient: torch.Tensor, latest: Settings
    ) -> tuple[torch.Tensor, StepSettings, torch.Tensor]:
        """Return a gradient, the settings of its step, and the mean of the model buffers.

        latest: settings that do not travel.
        """
        count, used, numbers, buffers = torch.split(
            gradient[self.size :], [1, self.tensors, len(self.numbers), self.buffers]
        )
        unused = [number for number, share in enumerate(used.tolist()) if not share]
        settings = deepcopy(latest) if self.numbers else latest
        for (group, name), mean in zip(self.numbers, (numbers / count).tolist(), strict=True):
            settings[group][name] = mean
        return gradient[: self.size], StepSettings(settings, unused), buffers / count


class ScriptBlock:
    """Parameters and model buffers of scripts. Implements `ParameterBlock`.

    Args:
        parameters: takes the steps.
        buffers: the model buffers at the start; shape (elements,).
        settings: returns the present settings of the optimizer.
    """

    def __init__(
        self,
        parameters: TensorBlock | OwnStepsBlock,
        buffers: torch.Tensor,
        tail: Tail,
        settings: Callable[[], Settings],
    ) -> None:
        self._tail, self._settings = tail, settings
        self._parameters, self._buffers = parameters, buffers.clone()
        self.is_finite = parameters.is_finite
        self.optimizer_state = parameters.optimizer_state
        self.load_optimizer_state = parameters.load_optimizer_state
        self._value: torch.Tensor | None = None

    @property
    def buffers(self) -> torch.Tensor:
        """The model buffers, as one vector."""
        return self._buffers

    @buffers.setter
    def buffers(self, values: torch.Tensor) -> None:
        self._buffers, self._value = values.clone(), None

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        return ""

    def widened(self, gradient: Value) -> Value:
        return gradient

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> None:
        found = whole(gradient)
        assert isinstance(found, torch.Tensor)
        flat, how, self._buffers = self._tail.cut_off(found, self._settings())
        self._parameters.update(flat, divisor, how, progress, factor, count)
        self._value = None

    def new_sum(self, workers: int) -> PartialSum:
        return TreeSum(workers)

    def read(self) -> torch.Tensor:
        found = self._parameters.read()
        assert isinstance(found, torch.Tensor)  # as the gradients are
        if not len(self._buffers):
            return found
        if self._value is None:
            self._value = torch.cat([found, self._buffers])
        return self._value

    def replace(self, parameters: Value) -> None:
        found = whole(parameters)
        assert isinstance(found, torch.Tensor)
        self._parameters.replace(found[: self._tail.size])
        self._buffers = found[self._tail.size :].clone()
        self._value = None


def optimizer_of(first: Attached, part: slice) -> TorchOptimizer:
    """Return the script's optimizer for a slice of the flat parameters. Raises ConfigError."""
    places = places_of(first.members, first.layers, part)
    return TorchOptimizer(first.optimizer, places, first.settings)


@dataclass(frozen=True, slots=True)
class ScriptReplicas:
    """How replicas of the common model take steps; takes the place of `Replicas`.

    Args:
        new_block: returns a block with the script's optimizer and any parameters.
    """

    first: Attached
    tail: Tail
    new_block: Callable[[], ScriptBlock]
    settings: Callable[[], Settings]

    @property
    def keep_state(self) -> bool:
        """True if each version of the common model needs its optimizer's state."""
        return self.first.optimizer != "SGD"

    def of(self, common: Common) -> Replica:
        """Return a replica of the common model."""
        if self.keep_state:
            return OptimizerReplica(common, self.new_block())
        return PlainScriptReplica(common, self)


class PlainScriptReplica(Replica):
    """A replica that takes plain steps with the learning rates of the script's groups."""

    takes_plain_steps = True

    def __init__(self, common: Common, how: ScriptReplicas) -> None:
        super().__init__(common)
        self._tail, self._settings = how.tail, how.settings
        first = how.first
        self._groups = places_of(first.members, first.layers, slice(0, how.tail.size))

    def step(self, gradient: Value, iteration: int) -> None:
        found = whole(gradient)
        assert isinstance(found, torch.Tensor)
        flat, how, buffers = self._tail.cut_off(found, self._settings())
        direction = torch.zeros_like(flat)
        for group, settings in zip(self._groups, how.groups, strict=True):
            rate = float(settings["lr"]) * (1 if settings.get("maximize") else -1)
            for _, low, high in group:
                direction[low:high] = rate * flat[low:high]
        value = whole(self.read())
        assert isinstance(value, torch.Tensor)
        stepped = plus(value[: self._tail.size], 1, direction)
        assert isinstance(stepped, torch.Tensor)
        self._be(torch.cat([stepped, buffers]))
