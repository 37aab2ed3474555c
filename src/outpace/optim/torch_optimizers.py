"""A user's torch optimizer, run by the servers.

`attach` sends the name of the optimizer, its parameter groups and their settings; a server makes
the same optimizer for its part of the parameters. The optimizer must work element by element, as
the optimizers in `KNOWN` do, because a server may own half of a tensor. The step is torch's default
on a CPU: unfused and one tensor at a time. In float32 and float64 it is bitwise equal to the step
of a single process. With `fused=True` in the script the servers take torch's fused step on a CPU.
This step rounds differently, and it rounds the last few elements of a tensor, or of a server's part
of a tensor, in another way than the others. In bfloat16 and float16, all of torch's kernels do
that.

torch's step of Adam passes through a tensor about ten times. On a tensor of 25 MB each pass reads
and writes main memory. So torch's optimizers are given a long tensor as many parameters of `CHUNK`
elements: the passes over each of them stay in a cache, and the result is bitwise the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from outpace.blocks.block import StepSettings
from outpace.blocks.slicing import consecutive
from outpace.blocks.sums import Gradient
from outpace.errors import ConfigError
from outpace.optim.step import OptimizerState, mean_of

KNOWN: Final = {
    kind.__name__: kind
    for kind in (
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.ASGD,
        torch.optim.Rprop,
    )
}
# Number of elements of a parameter. Together with its gradient, Adam's averages and an intermediate
# result, it takes 2.6 MB, twice the size of a second-level cache. For shorter parameters the fixed
# costs weigh more. The number is a multiple of the elements in a vector register, because torch may
# round the last elements of a tensor differently if they do not fill a register.
CHUNK: Final = 1 << 17
_FORCED: Final = {"foreach": False, "differentiable": False, "capturable": False}

State: TypeAlias = dict[str, Any]  # the state of one parameter, by name
Groups: TypeAlias = Sequence[Sequence[tuple[int, int, int]]]


def is_known(kind: type[torch.optim.Optimizer]) -> bool:
    """True if this class is in KNOWN; an equal name is not enough."""
    return KNOWN.get(kind.__name__) is kind


def require_known(kind: type[torch.optim.Optimizer]) -> None:
    """Raise ConfigError unless servers can run an optimizer of this class."""
    if issubclass(kind, torch.optim.LBFGS):
        raise ConfigError(SEVERAL_GRADIENTS)
    if not is_known(kind):
        raise ConfigError(_unknown(kind))


SEVERAL_GRADIENTS: Final = (
    "LBFGS computes several gradients for a step, and a run exchanges one for each step: use "
    "another optimizer, or DistributedDataParallel with sync.kind=ssgd"
)


def _unknown(kind: type[torch.optim.Optimizer] | str) -> str:
    name = kind if isinstance(kind, str) else kind.__name__
    what = f"the optimizer {name}"
    if not isinstance(kind, str) and name in KNOWN:
        origin = "the script" if kind.__module__ == "__main__" else kind.__module__
        what += f" of {origin} is not torch's {name}, so it"
    return (
        f"{what} is not one that servers know (torch's {', '.join(sorted(KNOWN))}): use "
        "sync.kind=ssgd or local-sgd, where the script's own optimizer takes the steps"
    )


def plain_settings(group: dict[str, Any], needed: Container[str]) -> dict[str, Any]:
    """Return the settings of a parameter group that are numbers, bools, text or lists of them.

    Raises ConfigError if a needed setting is something else.
    """
    found = {}
    for key, value in group.items():
        if key in ("params", "param_names"):
            continue
        plain = _plain(value)
        if plain is not _UNFIT:
            found[key] = plain
        elif key in needed:
            raise ConfigError(
                f"the optimizer's setting {key} is a {type(value).__name__}, which cannot be "
                "sent to the servers: make it a number"
            )
    return found


_UNFIT: Final = object()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        entries = [_plain(entry) for entry in value]
        return _UNFIT if any(entry is _UNFIT for entry in entries) else entries
    return _UNFIT


class TorchOptimizer:
    """The optimizer called `name` in KNOWN."""

    def __init__(self, name: str, groups: Groups, settings: Sequence[dict[str, Any]]) -> None:
        """Make an optimizer without parameters.

        Args:
            groups: for each parameter group, (parameter number, low, high) of its pieces.

        Raises:
            ConfigError: if the optimizer is unknown or refuses these settings.
        """
        self.groups, self.settings = groups, settings
        if name not in KNOWN:
            raise ConfigError(_unknown(name))
        self._kind = KNOWN[name]
        defaults = self._kind([torch.nn.Parameter(torch.empty(1))]).defaults
        # For each group, the first values: new values must have the same types.
        self._like = [{**group, **defaults} for group in settings]
        if refusal := self.refusal(StepSettings(list(settings))):
            raise ConfigError(refusal)

    def _made(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return torch's optimizer for groups with their settings. Raises ConfigError."""
        for group, settings in zip(groups, self.settings, strict=True):
            group.update({key: _as(value, None) for key, value in settings.items()})
        first: Any = self.settings[0] if self.settings else {}
        at_once = {key: first[key] for key in ("initial_accumulator_value",) if key in first}
        try:
            optimizer = self._kind(groups, **at_once)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the optimizer cannot be made: {error}") from error
        _set(optimizer, self.settings)
        return optimizer

    def refusal(self, settings: StepSettings | None) -> str:
        """Return why these settings cannot be set; empty if they can."""
        if settings is None:
            return ""
        if len(settings.groups) != len(self.groups):
            return (
                f"settings came for {len(settings.groups)} parameter groups, not {len(self.groups)}"
            )
        for group, like in zip(settings.groups, self._like, strict=True):
            for key, value in group.items():
                if key in like and not _is_like(value, like[key]):
                    return f"the optimizer's setting {key} cannot be {value!r}"
        return ""

    def on(self, parameters: torch.Tensor, layers: Sequence[slice] = ()) -> TorchSteps:
        """Return the object that takes steps on these parameters (1-D, changed in place).

        Raises ConfigError unless the parameters are the pieces of the groups, one after another.
        """
        pieces = sorted(
            (low, high, number) for ranges in self.groups for number, low, high in ranges
        )
        ends = [0, *(high for _, high, _ in pieces)]
        if [low for low, _, _ in pieces] != ends[:-1] or ends[-1] != parameters.numel():
            raise ConfigError(
                f"the optimizer's pieces of parameters do not make up the {parameters.numel()} "
                f"elements that the server has: {[(low, high) for low, high, _ in pieces]}"
            )
        variables = {number: in_chunks(parameters[low:high]) for low, high, number in pieces}
        groups: list[dict[str, Any]] = []
        for ranges in self.groups:
            members = [variable for number, _, _ in ranges for variable in variables[number]]
            groups.append({"params": members} if members else _empty_group())
        made = self._made(groups)
        return TorchSteps(made, variables, settings=self.settings)


def in_chunks(tensor: torch.Tensor) -> list[torch.nn.Parameter]:
    """Return parameters that share the memory of a 1-D tensor: on a CPU one per chunk, else one."""
    return (
        list(map(torch.nn.Parameter, torch.split(tensor, CHUNK)))
        if tensor.is_cpu
        else [torch.nn.Parameter(tensor)]
    )


class TorchSteps:
    """Takes the steps of a torch optimizer on the parameters in a block: a `Step`.

    Args:
        variables: the parts of each parameter's piece of the block, by number of the parameter and
            in the order of the block; together they are all elements of the block.
        settings: the settings of each group when the script made the optimizer.
        rate: returns the learning rate after a number of iterations; None: the settings have it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        variables: Mapping[int, Sequence[torch.nn.Parameter]],
        *,
        settings: Sequence[dict[str, Any]] = (),
        rate: Callable[[float], float] | None = None,
    ) -> None:
        self._optimizer, self._variables = optimizer, variables
        self._settings, self._rate = settings, rate
        self._lengths = [part.numel() for parts in variables.values() for part in parts]

    def __call__(
        self,
        gradient: Gradient,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float,
    ) -> None:
        if self._rate is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = self._rate(progress)
        if settings is not None:
            _set(self._optimizer, settings.groups, self._settings)
            self._settings = settings.groups
        unused = settings.unused if settings is not None else ()
        gradients = consecutive(gradient, self._lengths)
        for number, variables in self._variables.items():
            for variable in variables:
                part = next(gradients)
                variable.grad = None if number in unused else mean_of(part, divisor)
        with _scaled_rates(self._optimizer, factor):
            self._optimizer.step()
        for variables in self._variables.values():
            for variable in variables:
                variable.grad = None  # because the memory of the gradient may be reused

    def state(self) -> dict[int, State]:
        """Return a copy of the optimizer's state, by number of the parameter."""
        known = self._optimizer.state
        return {
            number: _joined([known[variable] for variable in variables])
            for number, variables in self._variables.items()
            if variables[0] in known
        }

    def _group_of(self, variable: torch.nn.Parameter) -> dict[str, Any]:
        groups = self._optimizer.param_groups
        return next(g for g in groups if any(p is variable for p in g["params"]))

    def load(self, state: OptimizerState) -> None:
        """Replace the optimizer's state by a copy of the given state."""
        known = self._optimizer.state
        known.clear()
        for number, values in state.items():
            variables = self._variables[number]
            group = self._group_of(variables[0])
            is_fused = bool(group.get("fused"))
            parts = {name: _parts(value, variables, is_fused) for name, value in values.items()}
            for place, variable in enumerate(variables):
                known[variable] = {name: each[place] for name, each in parts.items()}


def _joined(parts: Sequence[State]) -> State:
    """Return a copy of a parameter's state, joined from the states of its consecutive parts."""
    return {
        name: torch.cat([part[name] for part in parts])
        if isinstance(value, torch.Tensor) and value.ndim
        else deepcopy(value)
        for name, value in parts[0].items()
    }


def _parts(value: Any, variables: Sequence[torch.nn.Parameter], is_fused: bool) -> list[Any]:
    """Split a value of a parameter's state into copies for the consecutive parts of the parameter.

    Args:
        is_fused: True if the count of steps must be on the device of the parameter.
    """
    if not isinstance(value, torch.Tensor):
        return [deepcopy(value) for _ in variables]
    parts: Sequence[torch.Tensor] = [value] * len(variables)
    if value.ndim and len(variables) > 1:
        parts = torch.split(value, [variable.numel() for variable in variables])
    device = variables[0].device if value.ndim or is_fused else value.device
    return [part.clone().to(device) for part in parts]


@contextmanager
def _scaled_rates(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiply the learning rate of each group in this block."""
    groups = optimizer.param_groups if factor != 1 else []
    rates = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = factor * group["lr"]
    yield
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate


def _empty_group() -> dict[str, Any]:
    return {"params": [torch.nn.Parameter(torch.empty(0))]}


def _set(
    optimizer: torch.optim.Optimizer,
    settings: Sequence[dict[str, Any]],
    before: Sequence[dict[str, Any]] | None = None,
) -> None:
    """Set each group's settings, except settings that the optimizer does not have.

    before: the settings that were set last. A setting that has not changed since then is not set
    again, because the optimizer may have changed its own value.
    """
    for number, (group, wanted) in enumerate(zip(optimizer.param_groups, settings, strict=True)):
        last = {} if before is None else before[number]
        changed = {k: v for k, v in wanted.items() if k not in last or last[k] != v}
        group.update({key: _as(v, group[key]) for key, v in changed.items() if key in group})
        is_fused = wanted.get("fused") is True
        forced = {**_FORCED, "fused": is_fused}
        group.update({key: value for key, value in forced.items() if key in group})


def _as(value: Any, like: Any) -> Any:
    """Return the value; a list as a tuple, as messages have no tuples, unless `like` is a list."""
    return tuple(value) if isinstance(value, list) and not isinstance(like, list) else value


def _is_like(value: Any, default: Any) -> bool:
    """True if the value is of a kind that the default allows; numbers must be finite."""
    if isinstance(default, bool) or default is None:
        text = default is None and isinstance(value, str)
        return text or value is None or _is_number(value)
    if isinstance(default, tuple | list):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(default)
            and all(map(_is_like, value, default))
        )
    if isinstance(default, str):
        return isinstance(value, str)
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
