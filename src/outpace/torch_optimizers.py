"""A user's torch optimizer, run by the servers.

`attach` sends its name, its parameter groups and their settings; a server makes the same
optimizer on its part of the parameters. It must work element by element, as those on the
list do: a server may own half of a tensor. The step is torch's own, unfused and one
tensor at a time, so it is bitwise that of one process (unless that one asked for a fused
step, which rounds otherwise).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch

from outpace.errors import ConfigError
from outpace.messages import StepSettings
from outpace.updaters import Step

KNOWN: Final = {
    kind.__name__: kind
    for kind in (
        torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop,
        torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.Adamax, torch.optim.NAdam,
        torch.optim.RAdam, torch.optim.ASGD, torch.optim.Rprop,
    )
}  # fmt: skip
_FORCED: Final = {"foreach": False, "fused": False, "differentiable": False, "capturable": False}

Groups: TypeAlias = Sequence[Sequence[tuple[int, int, int]]]
Factory: TypeAlias = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


def plain_settings(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a parameter group that can travel: numbers, truths, text, lists of them."""
    return {
        key: plain
        for key, value in group.items()
        if key != "params" and (plain := _plain(value)) is not _UNFIT
    }


_UNFIT: Final = object()


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        entries = [_plain(entry) for entry in value]
        return _UNFIT if _UNFIT in entries else entries
    return _UNFIT


class TorchOptimizer:
    """`name` from KNOWN, or what `factory` makes of parameter groups."""

    def __init__(
        self, name: str, groups: Groups, settings: Sequence[dict[str, Any]],
        factory: Factory | None = None,
    ) -> None:  # fmt: skip
        """groups: for each parameter group, (parameter number, low, high) of its pieces.

        Raises ConfigError if there is no such optimizer, or none with these settings.
        """
        self.groups, self.settings = groups, settings
        made = factory or KNOWN.get(name)
        if made is None:
            raise ConfigError(
                f"the optimizer {name} is not one that servers know "
                f"({', '.join(sorted(KNOWN))}); name a function that makes it in the launch "
                "configuration: optimizer.kind=python optimizer.target=mine.py:make_optimizer"
            )
        self._make: Factory = made
        self._defaults = made([{"params": [torch.nn.Parameter(torch.empty(1))]}]).defaults
        if refusal := self.refusal(StepSettings(list(settings))):
            raise ConfigError(refusal)

    def refusal(self, settings: StepSettings | None) -> str:
        """Why these cannot be set, whoever sends them; empty if they can."""
        if settings is None:
            return ""
        if len(settings.groups) != len(self.groups):
            return (
                f"settings of {len(settings.groups)} parameter groups came for {len(self.groups)}"
            )
        for group in settings.groups:
            for key, value in group.items():
                if key in self._defaults and not _is_like(value, self._defaults[key]):
                    return f"the optimizer's setting {key} cannot be {value!r}"
        return ""

    def on(self, parameters: torch.Tensor) -> Step:
        """What takes one step on these parameters (1-D, changed in place)."""
        pieces: dict[int, list[tuple[torch.nn.Parameter, slice]]] = {}
        groups = []
        for ranges in self.groups:
            members = []
            for number, low, high in ranges:
                variable = torch.nn.Parameter(parameters[low:high])
                pieces.setdefault(number, []).append((variable, slice(low, high)))
                members.append(variable)
            groups.append({"params": members or [torch.nn.Parameter(torch.empty(0))]})
        optimizer = self._make(groups)
        _set(optimizer, self.settings)
        everything = [piece for group in pieces.values() for piece in group]

        def step(gradient: torch.Tensor, divisor: int, settings: StepSettings | None) -> None:
            if divisor != 1:
                gradient.div_(divisor)
            if settings is not None:
                _set(optimizer, settings.groups)
            for variable, part in everything:
                variable.grad = gradient[part]
            for number in settings.unused if settings is not None else ():
                for variable, _ in pieces.get(number, ()):
                    variable.grad = None
            optimizer.step()

        return step


def _set(optimizer: torch.optim.Optimizer, settings: Sequence[dict[str, Any]]) -> None:
    """Give each group its settings; those that the optimizer does not have are left out."""
    for group, wanted in zip(optimizer.param_groups, settings, strict=True):
        for key, value in wanted.items():
            if key in optimizer.defaults:
                group[key] = tuple(value) if isinstance(value, list) else value
        group.update({key: value for key, value in _FORCED.items() if key in group})


def _is_like(value: Any, default: Any) -> bool:
    """A hostile or broken peer must not set a learning rate of "hello", or of NaN."""
    if isinstance(default, bool) or default is None:
        return value is None or isinstance(value, bool) or _is_number(value)
    if isinstance(default, tuple | list):
        return isinstance(value, list | tuple) and all(map(_is_number, value))
    if isinstance(default, str):
        return isinstance(value, str)
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
