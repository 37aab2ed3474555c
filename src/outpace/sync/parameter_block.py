"""The parameters of one shard: steps on them, sums of gradients for them, copies of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import torch

from outpace.blocks.block import Block, Phantom, StepSettings, Value, whole
from outpace.blocks.pieces import Pieces
from outpace.blocks.sums import ArrivalSum, Gradient, TreeSum, all_finite
from outpace.optim import Optimizer, Sgd, in_one

_AT_ONCE: Final = 1 << 18  # elements


class ParameterBlock(Protocol):
    """The parameters of one shard and what may be done with them."""

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        """Why this is no gradient for these parameters, or they no settings; empty if they are."""

    def update(
        self, gradient: Value, divisor: float, settings: StepSettings | None, progress: float
    ) -> None:
        """Take one step along gradient / divisor, so many iterations after the start.

        The gradient may be changed.
        """

    def new_sum(self, workers: int) -> BlockSum:
        """An empty sum of gradients of so many workers."""

    def is_finite(self) -> bool:
        """False once a parameter is infinite or not a number."""

    def read(self) -> Value:
        """A copy that nobody will change; the same one until the next update."""

    def replace(self, parameters: Value) -> None:
        """Go on from these, which nobody will change; the optimizer keeps what it has gathered."""


class BlockSum(Protocol):
    """Adds up gradients of one iteration."""

    count: int

    def add(self, worker: int, gradient: Value) -> None: ...

    def mean(self) -> Value:
        """The sum divided by the number of gradients, rounded as a division is."""

    def total(self) -> Value:
        """The sum."""


class _RealBlock:
    """What has to do with the size of the parameters, not with how steps are taken."""

    def __init__(self, parameters: torch.Tensor, optimizer: Optimizer, deterministic: bool) -> None:
        self._elements, self._dtype = parameters.numel(), parameters.dtype
        self._optimizer, self._deterministic = optimizer, deterministic

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        if isinstance(gradient, Phantom):
            return "a gradient must be a tensor, not a Phantom"
        shape: tuple[int, ...] = (gradient.numel(),)
        if isinstance(gradient, torch.Tensor):
            shape = tuple(gradient.shape)
        if shape != (self._elements,) or gradient.dtype != self._dtype:
            return (
                f"the gradient has shape {shape} and {gradient.dtype}, "
                f"the parameters have {(self._elements,)} and {self._dtype}"
            )
        return self._optimizer.refusal(settings)

    def new_sum(self, workers: int) -> BlockSum:
        return _TreeBlockSum(workers) if self._deterministic else _ArrivalBlockSum(workers)


class TensorBlock(_RealBlock):
    """Real parameters: `parameters` (1-D) is copied. layers: as for `Optimizer.on`."""

    def __init__(
        self,
        parameters: torch.Tensor,
        optimizer: Optimizer,
        deterministic: bool = True,
        layers: Sequence[slice] = (),
    ) -> None:
        super().__init__(parameters, optimizer, deterministic)
        self._parameters = parameters.detach().clone()
        self._step = optimizer.on(self._parameters, layers)
        self._copy: torch.Tensor | None = None

    def update(
        self, gradient: Value, divisor: float, settings: StepSettings | None, progress: float
    ) -> None:
        assert not isinstance(gradient, Phantom)
        self._step(gradient, divisor, settings, progress)
        self._copy = None

    def is_finite(self) -> bool:
        return all_finite(self._parameters)

    def read(self) -> torch.Tensor:
        if self._copy is None:
            self._copy = self._parameters.clone()
        return self._copy

    def replace(self, parameters: Value) -> None:
        found = whole(parameters)
        assert isinstance(found, torch.Tensor)
        self._parameters.copy_(found)
        self._copy = None


class FreshBlock(_RealBlock):
    """Plain SGD, each step into other memory: readers need no copy of what is never changed.

    A large block, in the pieces in which it came, becomes the next parameters itself. It
    goes through memory once, a piece that fits a cache after the other, with the check
    while it is at hand. (torch's own step, a check and a copy for readers go through it
    three times.)
    """

    def __init__(self, parameters: torch.Tensor, optimizer: Sgd, deterministic: bool = True):
        # Not the step of torch's optimizer, which costs a second of imports.
        super().__init__(parameters, optimizer, deterministic)
        self._parameters: Gradient = parameters.detach().clone()
        self._rate, self._finite = optimizer.rate, True

    def update(
        self, gradient: Value, divisor: float, settings: StepSettings | None, progress: float
    ) -> None:
        assert not isinstance(gradient, Phantom)
        alpha = -self._rate(progress) / divisor
        if isinstance(gradient, torch.Tensor) and gradient.numel() <= _AT_ONCE:
            self._parameters = torch.add(in_one(self._parameters), gradient, alpha=alpha)
            self._finite = all_finite(self._parameters)
            return
        after: Gradient
        if isinstance(gradient, Pieces):
            steps, after = gradient, gradient
        else:  # perhaps part of something larger, which would be kept with it
            steps, after = Pieces(torch.split(gradient, _AT_ONCE)), torch.empty_like(gradient)
        finite = True
        for old, step, new in zip(
            steps.split(self._parameters), steps.parts, steps.split(after), strict=True
        ):
            torch.add(old, step, alpha=alpha, out=new)
            finite = finite and all_finite(new)
        steps.finite = None
        self._parameters, self._finite = after, finite

    def is_finite(self) -> bool:
        return self._finite

    def read(self) -> Value:
        return self._parameters

    def replace(self, parameters: Value) -> None:
        assert not isinstance(parameters, Phantom)
        self._parameters, self._finite = parameters, all_finite(parameters)


class _TreeBlockSum(TreeSum):
    def add(self, worker: int, gradient: Value) -> None:
        assert not isinstance(gradient, Phantom)
        super().add(worker, gradient)

    def mean(self) -> Any:
        return self.total().div_(self.count) if self.count > 1 else self.total()


class _ArrivalBlockSum(ArrivalSum):
    def add(self, worker: int, gradient: Value) -> None:
        assert not isinstance(gradient, Phantom)
        super().add(worker, gradient)

    def mean(self) -> Any:
        return self.total().div_(self.count) if self.count > 1 else self.total()


class PhantomBlock:
    """Parameters of a given size that nobody computes with (task `timing`)."""

    def __init__(self, nbytes: int) -> None:
        self._block = Phantom(nbytes)

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        if gradient.nbytes == self._block.nbytes:
            return ""
        return f"the gradient has {gradient.nbytes} bytes, the parameters {self._block.nbytes}"

    def update(
        self, gradient: Value, divisor: float, settings: StepSettings | None, progress: float
    ) -> None:
        pass

    def new_sum(self, workers: int) -> BlockSum:
        return _PhantomSum(self._block)

    def is_finite(self) -> bool:
        return True

    def read(self) -> Phantom:
        return self._block

    def replace(self, parameters: Value) -> None:
        pass


class _PhantomSum:
    def __init__(self, block: Phantom) -> None:
        self.count = 0
        self._block = block

    def add(self, worker: int, gradient: Value) -> None:
        self.count += 1

    def mean(self) -> Phantom:
        return self._block

    def total(self) -> Phantom:
        return self._block


def copy_of(value: Value) -> Value:
    """The same in memory of its own."""
    if isinstance(value, Pieces):
        return Pieces([part.clone() for part in value.parts], value.finite)
    return value if isinstance(value, Phantom) else value.clone()


def difference(one: Value, other: Value) -> Value:
    """The first less the second, in memory of its own."""
    first, second = whole(one), whole(other)
    if isinstance(first, Phantom) or isinstance(second, Phantom):
        return first
    return first - second


def plus(one: Value, other: Value) -> Value:
    """The sum of both. The first is given away: it may be changed."""
    first, second = whole(one), whole(other)
    if isinstance(first, Phantom) or isinstance(second, Phantom):
        return first
    return first.add_(second)


def parameter_block(
    initial: Block,
    optimizer: Optimizer,
    *,
    deterministic: bool = True,
    layers: Sequence[slice] = (),
) -> ParameterBlock:
    """The block that starts from these parameters.

    `deterministic`: gradients are added up in the order of the workers, not of arrival.
    `layers`: the parts of it that are of one parameter tensor each, for optimizers that care.
    """
    initial = whole(initial)
    if isinstance(initial, Phantom):
        return PhantomBlock(initial.nbytes)
    if isinstance(optimizer, Sgd) and optimizer.is_plain:
        return FreshBlock(initial, optimizer, deterministic)
    return TensorBlock(initial, optimizer, deterministic, layers)
