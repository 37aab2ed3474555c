"""Parameters of scripts, followed by the vector of averaged model buffers.

A value consists of the flat parameters and that vector (`engine.scripts.buffers`), if there is one.
A gradient is followed by its trailer (`engine.scripts.trailer`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from outpace.blocks.block import Block, Pieces, StepSettings, Value, value_of, whole
from outpace.blocks.sums import PartialSum, TreeSum
from outpace.engine.scripts.trailer import Settings, Trailer
from outpace.optim.torch_optimizers import Groups
from outpace.sync.parameter_block import SteppedParameters, plus
from outpace.sync.peers.parameters import Common, OptimizerReplica, Replica, Replicas


def value_with(parameters: torch.Tensor, buffers: torch.Tensor) -> torch.Tensor | Pieces:
    """Return parameters followed by the vector of averaged model buffers, if there is one."""
    return Pieces([parameters, buffers]) if len(buffers) else parameters


def taken_apart(value: Value, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the parameters in a value, and the vector of averaged model buffers after them.

    elements: number of elements of that vector.
    """
    if isinstance(value, Pieces) and elements:
        flat, buffers = value.parts
        return flat, buffers
    flat = whole(value)  # type: ignore[assignment]  # no phantom
    assert isinstance(flat, torch.Tensor)
    return flat[: len(flat) - elements], flat[len(flat) - elements :]


def _joined(pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the pieces of a gradient as one vector."""
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


class ScriptBlock:
    """Parameters and model buffers of scripts. Implements `ParameterBlock`.

    Args:
        parameters: takes the steps.
        buffers: the vector of averaged model buffers at the beginning.
        settings: returns the present settings of the optimizer.
        counts: True: the model belongs to one worker, which takes several steps from one average of
            its buffers to the next.
        leaves_buffers: True: steps do not change the buffers.
        before_step: called with this block before each step.
    """

    def __init__(
        self,
        parameters: SteppedParameters,
        buffers: torch.Tensor,
        trailer: Trailer,
        settings: Callable[[], Settings],
        *,
        counts: bool = False,
        leaves_buffers: bool = False,
        before_step: Callable[[ScriptBlock], None] = lambda _: None,
    ) -> None:
        self._trailer, self._settings, self._before_step = trailer, settings, before_step
        self._counts, self._leaves = counts, leaves_buffers
        self._parameters, self._buffers = parameters, buffers.clone()
        # number of changes since the last average
        self._since = torch.zeros(2 * len(trailer.buffers.shapes))
        self.optimizer_state = parameters.optimizer_state
        self.load_optimizer_state = parameters.load_optimizer_state
        self._value: torch.Tensor | Pieces | None = None

    @property
    def buffers(self) -> torch.Tensor:
        """The vector of averaged model buffers."""
        return self._buffers

    def keep(self, buffers: torch.Tensor) -> None:
        """Set the buffers that result from a step."""
        if self._leaves:
            return
        if self._counts:
            found, marks = buffers.clone(), len(self._since)
            self._since = self._since + found[:marks]
            found[:marks] = self._since
        else:
            found = self._trailer.buffers.settled(buffers, self._buffers)
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
        self._before_step(self)
        pieces, how, buffers = self._trailer.split(gradient, self._settings())
        flat = _joined(pieces)
        finite = self._parameters.update(flat, divisor, how, progress, factor, count)
        self.keep(buffers)
        self._value = None
        return finite

    def new_sum(self, workers: int) -> PartialSum:
        return TreeSum(workers)

    def read(self) -> torch.Tensor | Pieces:
        if self._value is None:
            found = whole(self._parameters.read())
            assert isinstance(found, torch.Tensor)
            self._value = value_with(found, self._buffers)
        return self._value

    def replace(self, parameters: Value) -> None:
        flat, buffers = taken_apart(parameters, len(self._buffers))
        self._parameters.replace(flat)
        self._buffers = buffers.to(self._buffers.dtype)
        self._since = torch.zeros_like(self._since)
        self._value = None

    def set_parameters(self, flat: torch.Tensor) -> None:
        """Replace the parameters, but not the model buffers."""
        self._parameters.replace(flat)
        self._value = None


def replicas_of_scripts(
    optimizer: str,
    groups: Groups,
    trailer: Trailer,
    settings: Callable[[], Settings],
    new_block: Callable[[], ScriptBlock],
) -> Replicas:
    """Return how replicas of a common model take steps of the scripts' optimizer.

    Args:
        optimizer: name of the optimizer's class.
        groups: (number, low, high) of each parameter, by parameter group.
        settings: returns the present settings of the optimizer.
        new_block: returns a block with that optimizer that does not change the model buffers.
    """
    if optimizer == "SGD":
        return Replicas(
            False, partial(PlainScriptReplica, groups=groups, trailer=trailer, settings=settings)
        )
    return Replicas(True, lambda common: OptimizerReplica(common, new_block()))


class PlainScriptReplica(Replica):
    """A replica that takes plain steps with the learning rates of the script's groups."""

    takes_plain_steps = True

    def __init__(
        self, common: Common, groups: Groups, trailer: Trailer, settings: Callable[[], Settings]
    ) -> None:
        super().__init__(common)
        self._groups, self._trailer, self._settings = groups, trailer, settings

    def step(self, gradient: Value, iteration: int) -> None:
        pieces, how, _ = self._trailer.split(gradient, self._settings())
        flat = _joined(pieces)
        direction = torch.zeros_like(flat)
        for group, settings in zip(self._groups, how.groups, strict=True):
            rate = float(settings["lr"]) * (1 if settings.get("maximize") else -1)
            for _, low, high in group:
                direction[low:high] = rate * flat[low:high]
        # The model's buffers do not change: only commits change them.
        value, buffers = taken_apart(self.read(), self._trailer.buffers.elements)
        # values may be exchanged on another device
        stepped = plus(value.to(flat.device), 1, direction)
        assert isinstance(stepped, torch.Tensor)
        self._be(value_with(stepped, buffers))
