"""The optimizer of a user's script after `attach`: the run handles its steps and its state."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch
from torch._compile import _disable_dynamo

from outpace.engine.scripts.ending import letting_it_end
from outpace.engine.scripts.model import when_shared
from outpace.errors import ConfigError
from outpace.support.place import HERE

Closure: TypeAlias = Callable[[], Any] | None


def take_over(
    optimizer: torch.optim.Optimizer,
    take_step: Callable[[Closure], Any],
    whole_state: Callable[[], AbstractContextManager[None]],
    loading_state: Callable[[], AbstractContextManager[None]],
) -> None:
    """Make `optimizer.step` call `take_step`; otherwise the optimizer behaves as before.

    Another process may hold the optimizer's state, but a state that the script saves is complete.

    The optimizer gets its own class and not an attribute, because schedulers and hooks wrap the
    step of the class. If a scheduler was made earlier, it has wrapped the old step in an attribute,
    which is removed.

    Args:
        whole_state: returns a context in which the optimizer has its whole state.
        loading_state: returns the context in which the script loads a state into the optimizer.

    Raises:
        ConfigError: if the script has replaced the optimizer's step.
    """
    kind: Any = type(optimizer)
    _remove_own_step(optimizer)
    has_stepped, this = False, os.getpid()

    @_disable_dynamo
    def step(self: Any, closure: Closure = None) -> Any:
        nonlocal has_stepped
        has_stepped = True
        self._opt_called = True  # schedulers check it
        with letting_it_end():
            return take_step(closure)

    @_disable_dynamo
    def stepped(*_: Any) -> None:
        """Refuse a step by a method that the script got before, as no other worker would see it."""
        nonlocal has_stepped
        is_of_run, has_stepped = has_stepped, False
        if not is_of_run and os.getpid() == this:
            raise ConfigError(
                f"worker-{HERE.number}: the script took a step by a method of the optimizer that "
                "it got before outpace.attach, so only this worker has taken it: get "
                "optimizer.step after outpace.attach"
            )

    def add_param_group(self: Any, param_group: dict[str, Any]) -> None:
        raise ConfigError(
            "a parameter group was added to the optimizer, but the run shares the groups that it "
            f"had {when_shared()}: add all groups before, or train with DistributedDataParallel "
            "and sync.kind=ssgd"
        )

    def load_state_dict(self: Any, state_dict: dict[str, Any]) -> None:
        with loading_state():
            kind.load_state_dict(self, state_dict)

    def state_dict(self: Any) -> Any:
        with whole_state():
            return kind.state_dict(self)

    def reduce(self: Any, _: Any) -> Any:
        """Copy as the original class does; uses protocol 0, since higher ones check the class."""
        with whole_state():
            make, (_, *arguments), *rest = kind.__reduce_ex__(self, 0)
        return (make, (kind, *arguments), *rest)

    hooked: Any = torch.optim.Optimizer.profile_hook_step(step)
    hooked.hooked = hooked._wrapped_by_lr_sched = True  # prevents further wrapping
    members = {
        "step": hooked,
        "add_param_group": add_param_group,
        "load_state_dict": load_state_dict,
        "state_dict": state_dict,
        "__reduce_ex__": reduce,
        # With this attribute GradScaler always calls step(), and sets `found_inf` to skip the step.
        "_step_supports_amp_scaling": True,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    optimizer.__class__ = type(kind.__name__, (kind,), members)
    optimizer.register_step_post_hook(stepped)


def _remove_own_step(optimizer: torch.optim.Optimizer) -> None:
    """Remove an attribute that hides the class's step, if it only calls that step.

    Raises:
        ConfigError: if the attribute does more, for example clips the gradient.
    """
    own = found = optimizer.__dict__.pop("step", None)
    while hasattr(found, "_wrapped_by_lr_sched"):  # an attribute made by a scheduler
        found = found.__wrapped__
    if found is not None and getattr(found, "__func__", found) is not type(optimizer).step:
        optimizer.step = own  # type: ignore[method-assign]
        raise ConfigError(
            f"the step of the {type(optimizer).__name__} was replaced by another function, which "
            "the run would leave out: call what it does before optimizer.step(), or register it "
            "by optimizer.register_step_pre_hook"
        )
