"""How an aggregated gradient changes parameters.

Optimizers are torch's own, on the one flat tensor of the block and in the unfused
single-tensor form, so that a shard takes bitwise the steps of a plain PyTorch process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch

from outpace.aggregate import Gradient
from outpace.checks import positive, require
from outpace.messages import StepSettings
from outpace.pieces import Pieces

# (gradient, divisor, settings) -> parameters changed in place by a step along
# gradient / divisor, with the settings of a user's optimizer if there are any
Step: TypeAlias = Callable[[Gradient, int, StepSettings | None], None]


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
        variable = torch.nn.Parameter(parameters)  # shares the memory
        optimizer = torch.optim.SGD(
            [variable], lr=self.lr, momentum=self.momentum, foreach=False, fused=False
        )

        def step(gradient: Gradient, divisor: int, _: StepSettings | None) -> None:
            gradient = in_one(gradient)
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


def in_one(gradient: Gradient) -> torch.Tensor:
    """The same in one piece, for who cannot do with several."""
    return gradient.whole() if isinstance(gradient, Pieces) else gradient
