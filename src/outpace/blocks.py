"""The parameters of one shard: steps on them, sums of gradients for them, copies of them."""

from __future__ import annotations

from typing import Any, Final, Protocol

import torch

from outpace.aggregate import ArrivalSum, TreeSum, all_finite
from outpace.messages import Block, Phantom, StepSettings, whole
from outpace.pieces import Pieces
from outpace.updaters import Optimizer, Sgd

_AT_ONCE: Final = 1 << 18  # elements


class ParameterBlock(Protocol):
    """The parameters of one shard and what may be done with them."""

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        """Why this is no gradient for these parameters, or they no settings; empty if they are."""

    def update(self, gradient: Block, divisor: int, settings: StepSettings | None) -> None:
        """Take one step along gradient / divisor. The gradient may be changed."""

    def new_sum(self, workers: int) -> BlockSum:
        """An empty sum of gradients of so many workers."""

    def is_finite(self) -> bool:
        """False once a parameter is infinite or not a number."""

    def read(self) -> Block:
        """A copy that nobody will change; the same one until the next update."""


class BlockSum(Protocol):
    """Adds up gradients of one iteration."""

    count: int

    def add(self, worker: int, gradient: Block) -> None: ...

    def mean(self) -> Block:
        """The sum divided by the number of gradients, rounded as a division is."""

    def total(self) -> Block:
        """The sum."""


class TensorBlock:
    """Real parameters: `parameters` (1-D) is copied."""

    def __init__(self, parameters: torch.Tensor, optimizer: Optimizer, deterministic: bool = True):
        self._parameters = parameters.detach().clone()
        self._optimizer, self._step = optimizer, optimizer.on(self._parameters)
        self._copy: torch.Tensor | None = None
        self._deterministic = deterministic

    def refusal(self, gradient: Block, settings: StepSettings | None) -> str:
        wanted = self._parameters
        if isinstance(gradient, Phantom):
            return "a gradient must be a tensor, not a Phantom"
        shape = (gradient.numel(),) if isinstance(gradient, Pieces) else tuple(gradient.shape)
        if shape != tuple(wanted.shape) or gradient.dtype != wanted.dtype:
            return (
                f"the gradient has shape {shape} and {gradient.dtype}, "
                f"the parameters have {tuple(wanted.shape)} and {wanted.dtype}"
            )
        return self._optimizer.refusal(settings)

    def update(self, gradient: Block, divisor: int, settings: StepSettings | None) -> None:
        assert not isinstance(gradient, Phantom)
        self._step(gradient, divisor, settings)
        self._copy = None

    def new_sum(self, workers: int) -> BlockSum:
        return _TreeBlockSum(workers) if self._deterministic else _ArrivalBlockSum(workers)

    def is_finite(self) -> bool:
        return all_finite(self._parameters)

    def read(self) -> torch.Tensor:
        if self._copy is None:
            self._copy = self._parameters.clone()
        return self._copy


class FreshBlock(TensorBlock):
    """Plain SGD, each step into new memory: readers need no copy of what is never changed.

    It goes through memory once, a piece that fits a cache after the other: parameters
    and gradient in, parameters out, and the check while they are at hand. (torch's own
    step, a check and a copy for readers go through it three times.)
    """

    def __init__(self, parameters: torch.Tensor, optimizer: Sgd, deterministic: bool = True):
        # Not the step of torch's optimizer, which costs a second of imports.
        self._parameters, self._optimizer = parameters.detach().clone(), optimizer
        self._deterministic = deterministic
        self._lr, self._finite = optimizer.lr, True

    def update(self, gradient: Block, divisor: int, settings: StepSettings | None) -> None:
        assert not isinstance(gradient, Phantom)
        alpha = -self._lr / divisor
        before = self._parameters
        if isinstance(gradient, torch.Tensor) and gradient.numel() <= _AT_ONCE:
            self._parameters = torch.add(before, gradient, alpha=alpha)
            self._finite = all_finite(self._parameters)
            return
        after = torch.empty_like(before)
        pieces = (
            gradient if isinstance(gradient, Pieces) else Pieces(torch.split(gradient, _AT_ONCE))
        )
        finite = True
        for old, new, piece in zip(
            pieces.split(before), pieces.split(after), pieces.parts, strict=True
        ):
            torch.add(old, piece, alpha=alpha, out=new)
            finite = finite and all_finite(new)
        self._parameters, self._finite = after, finite

    def is_finite(self) -> bool:
        return self._finite

    def read(self) -> torch.Tensor:
        return self._parameters


class _TreeBlockSum(TreeSum):
    def add(self, worker: int, gradient: Block) -> None:
        assert not isinstance(gradient, Phantom)
        super().add(worker, gradient)

    def mean(self) -> Any:
        return self.total().div_(self.count) if self.count > 1 else self.total()


class _ArrivalBlockSum(ArrivalSum):
    def add(self, worker: int, gradient: Block) -> None:
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

    def update(self, gradient: Block, divisor: int, settings: StepSettings | None) -> None:
        pass

    def new_sum(self, workers: int) -> BlockSum:
        return _PhantomSum(self._block)

    def is_finite(self) -> bool:
        return True

    def read(self) -> Phantom:
        return self._block


class _PhantomSum:
    def __init__(self, block: Phantom) -> None:
        self.count = 0
        self._block = block

    def add(self, worker: int, gradient: Block) -> None:
        self.count += 1

    def mean(self) -> Phantom:
        return self._block

    def total(self) -> Phantom:
        return self._block


def parameter_block(
    initial: Block, optimizer: Optimizer, *, deterministic: bool = True
) -> ParameterBlock:
    """The block that starts from these parameters.

    `deterministic`: gradients are added up in the order of the workers, not of arrival.
    """
    initial = whole(initial)
    if isinstance(initial, Phantom):
        return PhantomBlock(initial.nbytes)
    if isinstance(optimizer, Sgd) and optimizer.momentum == 0:
        return FreshBlock(initial, optimizer, deterministic)
    return TensorBlock(initial, optimizer, deterministic)
