"""How an aggregated gradient changes a block of parameters.

Optimizers are torch's own, on the one flat tensor of the block and in the unfused
single-tensor form, so that a shard takes bitwise the steps of a plain PyTorch process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch

from outpace.aggregate import ArrivalSum, TreeSum, all_finite
from outpace.checks import positive, require
from outpace.messages import Block, Phantom, StepSettings

# (gradient, divisor, settings) -> parameters changed in place by a step along
# gradient / divisor, with the settings of a user's optimizer if there are any
Step: TypeAlias = Callable[[torch.Tensor, int, StepSettings | None], None]


@dataclass(frozen=True, slots=True)
class Sgd:
    """w ← w − lr·b with b ← momentum·b + g, as torch.optim.SGD.

    Raises ValueError unless lr > 0 and 0 <= momentum < 1.
    """

    kind: Literal["sgd"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.0

    def __post_init__(self) -> None:
        require(positive(self.lr), "lr", "a positive number, at most 1e9", self.lr)
        require(0 <= self.momentum < 1, "momentum", "in [0, 1)", self.momentum)

    def refusal(self, settings: StepSettings | None) -> str:
        return "" if settings is None else "the optimizer of this run takes no settings"

    def on(self, parameters: torch.Tensor) -> Step:
        """What takes one step on these parameters (1-D, changed in place)."""
        if self.momentum == 0:  # torch's own step does this, after 20 µs of Python

            def plain_step(gradient: torch.Tensor, divisor: int, _: StepSettings | None) -> None:
                parameters.add_(gradient, alpha=-self.lr / divisor)

            return plain_step
        variable = torch.nn.Parameter(parameters)  # shares the memory
        optimizer = torch.optim.SGD(
            [variable], lr=self.lr, momentum=self.momentum, foreach=False, fused=False
        )

        def step(gradient: torch.Tensor, divisor: int, _: StepSettings | None) -> None:
            variable.grad = gradient if divisor == 1 else gradient.div_(divisor)
            optimizer.step()
            variable.grad = None

        return step


class Optimizer(Protocol):
    """Makes steps."""

    def refusal(self, settings: StepSettings | None) -> str:
        """Why a push may not come with these; empty if it may."""

    def on(self, parameters: torch.Tensor) -> Step:
        """What takes one step on these parameters (1-D, changed in place)."""


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
        if not isinstance(gradient, torch.Tensor):
            return f"a gradient must be a tensor, not {type(gradient).__name__}"
        if gradient.shape != wanted.shape or gradient.dtype != wanted.dtype:
            return (
                f"the gradient has shape {tuple(gradient.shape)} and {gradient.dtype}, "
                f"the parameters have {tuple(wanted.shape)} and {wanted.dtype}"
            )
        return self._optimizer.refusal(settings)

    def update(self, gradient: Block, divisor: int, settings: StepSettings | None) -> None:
        assert isinstance(gradient, torch.Tensor)
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


class _TreeBlockSum(TreeSum):
    def add(self, worker: int, gradient: Block) -> None:
        assert isinstance(gradient, torch.Tensor)
        super().add(worker, gradient)

    def mean(self) -> torch.Tensor:
        return self.total().div_(self.count) if self.count > 1 else self.total()


class _ArrivalBlockSum(ArrivalSum):
    def add(self, worker: int, gradient: Block) -> None:
        assert isinstance(gradient, torch.Tensor)
        super().add(worker, gradient)

    def mean(self) -> torch.Tensor:
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
    if isinstance(initial, Phantom):
        return PhantomBlock(initial.nbytes)
    return TensorBlock(initial, optimizer, deterministic)
