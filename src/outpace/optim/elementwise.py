"""Element-wise optimizers, for which it does not matter how parameters are sliced.

They are torch's optimizers in their unfused single-tensor form, applied to the flat tensor of a
block, so that the steps of a shard are bitwise equal to the steps of a plain PyTorch process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch

from outpace.optim.step import Step, Updater
from outpace.optim.torch_optimizers import TorchSteps, in_chunks
from outpace.support.checks import Decay, NotNegative, Positive, check_ranges, require


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elementwise(Updater):
    """The optimizer `torch_class`, with the fields of this dataclass as its arguments.

    The learning rate is set before each step.
    """

    torch_class: ClassVar[Any]

    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> Step:
        variables = in_chunks(parameters)
        own = {"kind", "schedule", "reference_batch"}
        names = [entry.name for entry in fields(self) if entry.name not in own]
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        # If `foreach` is given, torch does not choose a fused step.
        made = self.torch_class(variables, **settings, foreach=False)
        return TorchSteps(made, {0: variables}, rate=self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd(_Elementwise):
    """torch.optim.SGD: w ← w − lr·b with b ← momentum·b + g.

    With nesterov w ← w − lr·(g + momentum·b).
    Raises ValueError unless 0 <= momentum < 1, and > 0 for nesterov.

    Attributes:
        momentum: from 0 to below 1.
        nesterov: take the step of Nesterov's momentum.
        fused: take torch's fused step, one pass over memory, whose last bits differ.
    """

    kind: Literal["sgd"] = "sgd"
    momentum: Decay = 0.0
    nesterov: bool = False
    fused: bool = False

    torch_class: ClassVar = torch.optim.SGD

    def __post_init__(self) -> None:
        check_ranges(self)
        wanting = self.nesterov and self.momentum == 0
        require(not wanting, "momentum", "greater than 0 with nesterov", self.momentum)

    @property
    def is_plain(self) -> bool:
        """True if each step is w ← w − rate·g."""
        return self.momentum == 0 and self.weight_decay == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdamLike(_Elementwise):
    """The settings of Adam and AdamW.

    Attributes:
        betas: decay rates of the averages of the gradients and of their squares.
        eps: added to the divisor.
        fused: take torch's fused step, one pass over memory, whose last bits differ.
    """

    lr: Positive = 0.001
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Positive = 1e-8
    fused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(_AdamLike):
    """torch.optim.Adam (Kingma and Ba, 2015); weight_decay is added to the gradient.

    Raises ValueError unless both betas are in [0, 1) and eps > 0.
    """

    kind: Literal["adam"] = "adam"

    torch_class: ClassVar = torch.optim.Adam


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(_AdamLike):
    """torch.optim.AdamW (Loshchilov and Hutter, 2019): w ← w − lr·weight_decay·w, then Adam.

    Raises ValueError unless both betas are in [0, 1) and eps > 0.
    """

    kind: Literal["adamw"] = "adamw"
    weight_decay: NotNegative = 0.01

    torch_class: ClassVar = torch.optim.AdamW


@dataclass(frozen=True, slots=True, kw_only=True)
class Adagrad(_Elementwise):
    """torch.optim.Adagrad (Duchi, Hazan and Singer, 2011).

    Raises ValueError unless eps > 0.

    Attributes:
        eps: added to the divisor.
    """

    kind: Literal["adagrad"] = "adagrad"
    lr: Positive = 0.01
    eps: Positive = 1e-10

    torch_class: ClassVar = torch.optim.Adagrad


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsProp(_Elementwise):
    """torch.optim.RMSprop (Tieleman and Hinton, 2012).

    Raises ValueError unless alpha and momentum are in [0, 1) and eps > 0.

    Attributes:
        alpha: decay rate of the average of squared gradients.
        eps: added to the divisor.
        momentum: from 0 to below 1.
    """

    kind: Literal["rmsprop"] = "rmsprop"
    lr: Positive = 0.01
    alpha: Decay = 0.99
    eps: Positive = 1e-8
    momentum: Decay = 0.0

    torch_class: ClassVar = torch.optim.RMSprop
