"""The arithmetic of torch's unfused steps of SGD and Adam(W), without what a call of torch costs.

`torch.optim.adam.adam` needs some 75 µs beside its arithmetic, and makes new tensors. Here the same
operations are called on the same numbers in the same order, so the bits are the same. `is_torchs`
says whether they are with the release of torch that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, TypeAlias

import torch

# Takes a step: the group's settings, the number of this step from 1 on, parameter, gradient, what
# the optimizer remembers, and memory of the parameter's length, which is overwritten.
Take: TypeAlias = Callable[
    [
        Mapping[str, Any],
        float,
        torch.Tensor,
        torch.Tensor,
        Mapping[str, torch.Tensor],
        torch.Tensor,
    ],
    None,
]


def take_sgd(
    group: Mapping[str, Any],
    step: float,
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    state: Mapping[str, torch.Tensor],
    scratch: torch.Tensor,
) -> None:
    """Take a step of `torch.optim.SGD`; not the first one if it has momentum."""
    momentum, decay = group["momentum"], group["weight_decay"]
    gradient = _to_follow(gradient, parameter, decay, scratch, rises=group["maximize"])
    if momentum != 0:
        buffer = state["momentum_buffer"]
        buffer.mul_(momentum).add_(gradient, alpha=1 - group["dampening"])
        if group["nesterov"]:
            gradient = torch.add(gradient, buffer, alpha=momentum, out=scratch)
        else:
            gradient = buffer
    parameter.add_(gradient, alpha=-group["lr"])


def take_adam(
    group: Mapping[str, Any],
    step: float,
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    state: Mapping[str, torch.Tensor],
    scratch: torch.Tensor,
    *,
    is_adamw: bool,
) -> None:
    """Take a step of `torch.optim.Adam` or `AdamW`."""
    (beta1, beta2), rate, decay = group["betas"], group["lr"], group["weight_decay"]
    average, square = state["exp_avg"], state["exp_avg_sq"]
    if group.get("decoupled_weight_decay", is_adamw):  # older releases have no such setting
        if decay != 0:
            parameter.mul_(1 - rate * decay)
        decay = 0.0
    gradient = _to_follow(gradient, parameter, decay, scratch, rises=group["maximize"])
    average.lerp_(gradient, 1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    if group["amsgrad"]:
        largest = state["max_exp_avg_sq"]
        square = torch.maximum(largest, square, out=largest)
    torch.sqrt(square, out=scratch)
    scratch.div_((1 - beta2**step) ** 0.5).add_(group["eps"])
    parameter.addcdiv_(average, scratch, value=-(rate / (1 - beta1**step)))


def _to_follow(
    gradient: torch.Tensor,
    parameter: torch.Tensor,
    decay: float,
    scratch: torch.Tensor,
    *,
    rises: bool,
) -> torch.Tensor:
    """Return the gradient with weight decay, perhaps in `scratch`; rises: for a maximum."""
    if rises:
        gradient = torch.neg(gradient, out=scratch)
    if decay != 0:
        gradient = torch.add(gradient, parameter, alpha=decay, out=scratch)
    return gradient


TAKES: Final[Mapping[type[torch.optim.Optimizer], Take]] = {
    torch.optim.SGD: take_sgd,
    torch.optim.Adam: partial(take_adam, is_adamw=False),
    torch.optim.AdamW: partial(take_adam, is_adamw=True),
}
_ELEMENTS: Final = 173  # not a multiple of a vector register's
_TRIED: Final[Mapping[type[torch.optim.Optimizer], list[dict[str, Any]]]] = {
    torch.optim.SGD: [
        {"weight_decay": 0.01},
        {"momentum": 0.9, "dampening": 0.2, "maximize": True},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ],
    torch.optim.Adam: [{}, {"weight_decay": 0.01, "amsgrad": True, "maximize": True}],
    torch.optim.AdamW: [{}, {"amsgrad": True}],
}


@cache
def is_torchs(kind: type[torch.optim.Optimizer], dtype: torch.dtype) -> bool:
    """True if the steps of this class, one of `TAKES`, are bitwise those of torch."""
    draw = torch.Generator().manual_seed(0)

    def numbers() -> torch.Tensor:
        return torch.randn(_ELEMENTS, generator=draw, dtype=dtype)

    for settings in _TRIED[kind]:
        variable = torch.nn.Parameter(numbers())
        optimizer: Any = kind([variable], lr=0.03, foreach=False, **settings)  # type: ignore[call-arg]
        for step in range(1, 4):
            gradient = numbers()
            variable.grad = gradient.clone()
            mine = variable.detach().clone()
            state = {
                name: value.clone()
                for name, value in optimizer.state[variable].items()
                if torch.is_tensor(value)
            }
            optimizer.step()
            if step > 1:
                group = optimizer.param_groups[0]
                TAKES[kind](group, float(step), mine, gradient, state, torch.empty_like(mine))
                state.pop("step", None)
                kept = optimizer.state[variable]
                known = [torch.equal(value, kept[name]) for name, value in state.items()]
                if not (torch.equal(mine, variable.detach()) and all(known)):
                    return False
    return True
