"""Element-wise optimizers, for which it does not matter how parameters are sliced.

They are torch's optimizers, applied to the flat tensor of a block in the unfused single-tensor
form, so that a shard takes bitwise the steps of a plain PyTorch process.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import torch

from outpace.blocks.block import StepSettings
from outpace.blocks.sums import Gradient
from outpace.optim.step import Step, Updater, in_one
from outpace.support.checks import positive, require

_Variables: TypeAlias = list[torch.nn.Parameter]
_PLAIN: Final[dict[str, Any]] = {"foreach": False, "fused": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elementwise(Updater):
    """A torch optimizer whose learning rate is set before each step."""

    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        variable = torch.nn.Parameter(parameters)  # shares the memory
        optimizer = self._of([variable])
        (group,) = optimizer.param_groups

        def step(
            gradient: Gradient, divisor: float, _: StepSettings | None, progress: float
        ) -> None:
            gradient = in_one(gradient)
            variable.grad = gradient if divisor == 1 else gradient.div_(divisor)
            group["lr"] = self.rate(progress)
            optimizer.step()
            variable.grad = None

        return step

    @abstractmethod
    def _of(self, variables: _Variables) -> torch.optim.Optimizer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd(_Elementwise):
    """torch.optim.SGD: w ← w − lr·b with b ← momentum·b + g.

    With nesterov w ← w − lr·(g + momentum·b).
    Raises ValueError unless 0 <= momentum < 1, and > 0 for nesterov.
    """

    kind: Literal["sgd"] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        Updater.__post_init__(self)
        require(0 <= self.momentum < 1, "momentum", "in [0, 1)", self.momentum)
        wanting = self.nesterov and self.momentum == 0
        require(not wanting, "momentum", "greater than 0 with nesterov", self.momentum)

    @property
    def is_plain(self) -> bool:
        """True if each step is w ← w − rate·g."""
        return self.momentum == 0 and self.weight_decay == 0

    def _of(self, variables: _Variables) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            variables,
            self.lr,
            self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            **_PLAIN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(_Elementwise):
    """torch.optim.Adam (Kingma and Ba, 2015); weight_decay is added to the gradient.

    Raises ValueError unless both betas are in [0, 1) and eps > 0.
    """

    kind: Literal["adam"] = "adam"
    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        Updater.__post_init__(self)
        _require_betas(self.betas)
        _require_eps(self.eps)

    def _of(self, variables: _Variables) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            variables, self.lr, self.betas, self.eps, self.weight_decay, **_PLAIN
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(_Elementwise):
    """torch.optim.AdamW (Loshchilov and Hutter, 2019): w ← w − lr·weight_decay·w, then Adam.

    Raises ValueError unless both betas are in [0, 1) and eps > 0.
    """

    kind: Literal["adamw"] = "adamw"
    lr: float = 0.001
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        Updater.__post_init__(self)
        _require_betas(self.betas)
        _require_eps(self.eps)

    def _of(self, variables: _Variables) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            variables, self.lr, self.betas, self.eps, self.weight_decay, **_PLAIN
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adagrad(_Elementwise):
    """torch.optim.Adagrad (Duchi, Hazan and Singer, 2011).

    Raises ValueError unless eps > 0.
    """

    kind: Literal["adagrad"] = "adagrad"
    lr: float = 0.01
    eps: float = 1e-10

    def __post_init__(self) -> None:
        Updater.__post_init__(self)
        _require_eps(self.eps)

    def _of(self, variables: _Variables) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(
            variables, self.lr, weight_decay=self.weight_decay, eps=self.eps, **_PLAIN
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsProp(_Elementwise):
    """torch.optim.RMSprop (Tieleman and Hinton, 2012).

    Raises ValueError unless alpha and momentum are in [0, 1) and eps > 0.
    """

    kind: Literal["rmsprop"] = "rmsprop"
    lr: float = 0.01
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0

    def __post_init__(self) -> None:
        Updater.__post_init__(self)
        require(0 <= self.alpha < 1, "alpha", "in [0, 1)", self.alpha)
        _require_eps(self.eps)
        require(0 <= self.momentum < 1, "momentum", "in [0, 1)", self.momentum)

    def _of(self, variables: _Variables) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(
            variables,
            self.lr,
            self.alpha,
            self.eps,
            self.weight_decay,
            self.momentum,
            foreach=False,
        )


def _require_betas(betas: tuple[float, float]) -> None:
    for place, beta in enumerate(betas):
        require(0 <= beta < 1, f"betas[{place}]", "in [0, 1)", beta)


def _require_eps(eps: float) -> None:
    require(positive(eps), "eps", "a positive number, at most 1e9", eps)
