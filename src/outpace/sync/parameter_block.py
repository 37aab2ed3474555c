"""The parameters of one shard: steps, sums of gradients, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeGuard

import torch

from outpace.blocks.block import Block, Phantom, Pieces, StepSettings, Value, value_of, whole
from outpace.blocks.narrowing import NARROW, is_narrowed, narrowed, widened
from outpace.blocks.sums import ArrivalSum, Gradient, PartialSum, TreeSum, all_finite
from outpace.optim import Optimizer, OptimizerState, Sgd

_AT_ONCE: Final = 1 << 18  # elements


class SteppedParameters(Protocol):
    """Parameters that the steps of an optimizer change."""

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> bool:
        """Take one step along gradient / divisor; may overwrite the gradient.

        progress: iterations since the start of training. factor: factor of the learning rate.
        count: number of gradients whose sum is given; the step uses their mean.

        Returns:
            False if a parameter has become infinite or NaN.
        """

    def read(self) -> Value:
        """Return a copy that is never changed; calls between two updates return the same copy."""

    def replace(self, parameters: Value) -> None:
        """Replace the parameters by a value that the caller never changes.

        The optimizer keeps its state.
        """

    def optimizer_state(self) -> OptimizerState:
        """Return a copy of the optimizer's state."""

    def load_optimizer_state(self, state: OptimizerState) -> None:
        """Replace the optimizer's state by a copy of this state."""


class ParameterBlock(SteppedParameters, Protocol):
    """The parameters of one shard."""

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        """Return why the gradient or the settings do not fit; empty if they do.

        A gradient may have been narrowed (`blocks.narrowing`).
        """

    def value_of(self, gradient: Block) -> Value:
        """Return a gradient in the precision of the parameters, computed if it is deferred."""

    def new_sum(self, workers: int) -> PartialSum:
        """Return an empty sum for the gradients of `workers` workers."""


class _RealBlock:
    """The part of a real block that does not depend on how steps are taken."""

    def __init__(
        self,
        parameters: torch.Tensor,
        optimizer: Optimizer,
        deterministic: bool,
    ) -> None:
        self._dtype, self._shape = parameters.dtype, torch.Size([parameters.numel()])
        self._optimizer, self._deterministic = optimizer, deterministic

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        if isinstance(gradient, Phantom):
            return "a gradient must be a tensor, not a Phantom"
        dtype = gradient.dtype
        shape = gradient.shape if isinstance(gradient, torch.Tensor) else (gradient.numel(),)
        fits = dtype == self._dtype or (dtype == NARROW and is_narrowed(self._dtype))
        if not fits or shape != self._shape:
            return (
                f"the gradient has shape {tuple(shape)} and {dtype}, "
                f"the parameters have {tuple(self._shape)} and {self._dtype}"
            )
        return self._optimizer.refusal(settings)

    def value_of(self, gradient: Block) -> Value:
        return widened(value_of(gradient), self._dtype)

    def new_sum(self, workers: int) -> PartialSum:
        return TreeSum(workers) if self._deterministic else ArrivalSum()


class TensorBlock(_RealBlock):
    """Real parameters; `parameters` (1-D) is copied.

    layers: see `Optimizer.on`.
    """

    def __init__(
        self,
        parameters: torch.Tensor,
        optimizer: Optimizer,
        deterministic: bool = True,
        layers: Sequence[slice] = (),
    ) -> None:
        super().__init__(parameters, optimizer, deterministic)
        self._parameters = parameters.detach().clone()
        self.take_step = optimizer.on(self._parameters, layers)
        self._copy: Gradient | None = None

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> bool:
        assert not isinstance(gradient, Phantom)
        self.take_step(_mean(gradient, count), divisor, settings, progress, factor)
        self._copy = None
        return all_finite(self._parameters)

    def read(self) -> Gradient:
        if self._copy is None:
            self._copy = self._parameters.clone()
        return self._copy

    def optimizer_state(self) -> OptimizerState:
        return self.take_step.state()

    def load_optimizer_state(self, state: OptimizerState) -> None:
        self.take_step.load(state)

    def replace(self, parameters: Value) -> None:
        found = whole(parameters)
        assert isinstance(found, torch.Tensor)
        self._parameters.copy_(found)
        self._copy = None


class _Stateless:
    """The part of a block whose optimizer remembers nothing between steps."""

    def optimizer_state(self) -> OptimizerState:
        return {}

    def load_optimizer_state(self, state: OptimizerState) -> None:
        pass


class FreshBlock(_Stateless, _RealBlock):
    """Plain SGD that writes each step to new memory, so that readers need no copy.

    The memory of a large gradient that arrives in pieces becomes the next parameters, unless
    another process can write to it. Each piece fits into a cache and is checked in the same pass,
    so the gradient is read from memory once. (torch's step, a check and a copy for readers would
    read it three times.)
    """

    def __init__(
        self,
        parameters: torch.Tensor,
        optimizer: Sgd,
        deterministic: bool = True,
    ) -> None:
        # torch's optimizer is not used, because importing it takes a second.
        super().__init__(parameters, optimizer, deterministic)
        self._parameters: Gradient = parameters.detach().clone()
        self._rate = optimizer.rate

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> bool:
        assert not isinstance(gradient, Phantom)
        alpha = -factor * self._rate(progress) / divisor
        if isinstance(gradient, torch.Tensor) and gradient.numel() <= _AT_ONCE:
            self.replace(plus(self._parameters, alpha, _mean(gradient, count)))
            return all_finite(self._parameters)
        after, steps = _memory_of(gradient), gradient
        if not isinstance(steps, Pieces):
            steps = Pieces(torch.split(steps, _AT_ONCE))
        finite = True
        for old, step, new in zip(
            steps.split(self._parameters), steps.parts, steps.split(after), strict=True
        ):
            torch.add(old, step if count == 1 else step.div_(count), alpha=alpha, out=new)
            finite = finite and all_finite(new)
        self._parameters = after
        return finite

    def read(self) -> Value:
        return self._parameters

    def replace(self, parameters: Value) -> None:
        assert not isinstance(parameters, Phantom)
        self._parameters = parameters


class PhantomBlock(_Stateless):
    """Parameters with a size but no values (task `timing`)."""

    def __init__(self, nbytes: int) -> None:
        self._block = Phantom(nbytes)

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        sent, own = gradient.nbytes, self._block.nbytes
        if sent == own or sent == narrowed(self._block).nbytes:
            return ""
        return f"the gradient has {sent} bytes, the parameters {own}"

    def value_of(self, gradient: Block) -> Phantom:
        return self._block

    def update(
        self,
        gradient: Value,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float = 1.0,
        count: int = 1,
    ) -> bool:
        return True

    def new_sum(self, workers: int) -> PartialSum:
        return ArrivalSum()

    def read(self) -> Phantom:
        return self._block

    def replace(self, parameters: Value) -> None:
        pass


def imports_dynamo(optimizer: Optimizer) -> bool:
    """True if this optimizer's block imports torch._dynamo with torch's optimizer, in 1.5 s."""
    return not _is_plain(optimizer)


def _is_plain(optimizer: Optimizer) -> TypeGuard[Sgd]:
    return isinstance(optimizer, Sgd) and optimizer.is_plain


def plus(one: Block, factor: float, other: Block) -> torch.Tensor | Phantom:
    """Return one + factor · other, in new memory."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.add(one, other, alpha=factor)
    first, second = whole(one), whole(other)
    if isinstance(first, Phantom) or isinstance(second, Phantom):
        return first
    return torch.add(first, second, alpha=factor)


def _mean(total: Gradient, count: int) -> Gradient:
    """Return a sum divided by the number of its terms, in place."""
    return total if count == 1 else total.div_(count)


def _memory_of(gradient: Gradient) -> Gradient:
    """Return memory for parameters: the gradient's memory, if no other process can write to it.

    The process that sent a gradient must not be able to write to the parameters. A tensor may also
    be a view that keeps a larger tensor in memory.
    """
    if not isinstance(gradient, Pieces):
        return torch.empty_like(gradient)
    if gradient.is_shared:
        return Pieces([torch.empty_like(part) for part in gradient.parts])
    gradient.finite = None
    return gradient


def parameter_block(
    initial: Block,
    optimizer: Optimizer,
    *,
    deterministic: bool = True,
    layers: Sequence[slice] = (),
) -> ParameterBlock:
    """Return the block that starts from these parameters.

    Args:
        deterministic: True to add gradients in the order of workers, not in the order of arrival.
        layers: the slice of each parameter tensor; some optimizers need them.
    """
    initial = whole(initial)
    if isinstance(initial, Phantom):
        return PhantomBlock(initial.nbytes)
    if _is_plain(optimizer):
        return FreshBlock(initial, optimizer, deterministic)
    return TensorBlock(initial, optimizer, deterministic, layers)
