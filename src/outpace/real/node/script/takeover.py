"""Replaces the `step` method of a user's optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from outpace.errors import ConfigError

Closure: TypeAlias = Callable[[], Any] | None


def has_taken_steps(optimizer: torch.optim.Optimizer) -> bool:
    """True if an optimizer has taken steps, or has loaded the state of one that has."""
    return any(
        float(state.get("step", 1)) > 0 and any(value is not None for value in state.values())
        for state in optimizer.state.values()
    )


def take_over(
    optimizer: torch.optim.Optimizer,
    take_step: Callable[[Closure], Any],
    state_is_lost: Callable[[], None],
) -> None:
    """Make `optimizer.step` call `take_step`; otherwise the optimizer behaves as before.

    The optimizer gets its own class rather than an attribute, because schedulers and hooks wrap
    the step of the class. A scheduler made earlier has wrapped the old step as an attribute,
    which is removed.

    Args:
        state_is_lost: called when the state of an optimizer that has taken steps is loaded.
    """
    kind: Any = type(optimizer)
    optimizer.__dict__.pop("step", None)

    def step(self: Any, closure: Closure = None) -> Any:
        self._opt_called = True  # schedulers check it
        return take_step(closure)

    def add_param_group(self: Any, group: dict[str, Any]) -> None:
        raise ConfigError("add all parameter groups before outpace.attach, which shares them")

    def load_state_dict(self: Any, state: dict[str, Any]) -> None:
        kind.load_state_dict(self, state)
        if has_taken_steps(self):
            state_is_lost()

    def reduce(self: Any, _: Any) -> Any:
        """Copy as the original class; protocol 0, because protocols 2 and up check the class."""
        make, (_, *arguments), *rest = kind.__reduce_ex__(self, 0)
        return (make, (kind, *arguments), *rest)

    hooked: Any = torch.optim.Optimizer.profile_hook_step(step)
    hooked.hooked = hooked._wrapped_by_lr_sched = True  # prevents further wrapping
    members = {
        "step": hooked,
        "add_param_group": add_param_group,
        "load_state_dict": load_state_dict,
        "__reduce_ex__": reduce,
        # GradScaler then always calls step(), and sets `found_inf` if the step is to be skipped.
        "_step_supports_amp_scaling": True,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    optimizer.__class__ = type(kind.__name__, (kind,), members)
