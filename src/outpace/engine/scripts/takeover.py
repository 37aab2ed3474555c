"""Takes over a user's optimizer: `step`, and the methods that save and load its state.

While its steps are taken elsewhere, the script's own optimizer has no state (momentum and the
like). What the script saves has all of it, and what it loads goes to where the steps are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch
from torch._compile import _disable_dynamo

from outpace.engine.scripts.misuse import when_shared
from outpace.engine.scripts.running import letting_it_end
from outpace.errors import ConfigError

Closure: TypeAlias = Callable[[], Any] | None


def take_over(
    optimizer: torch.optim.Optimizer,
    take_step: Callable[[Closure], Any],
    whole_state: Callable[[], AbstractContextManager[None]],
    loading_state: Callable[[], AbstractContextManager[None]],
) -> None:
    """Make `optimizer.step` call `take_step`; otherwise the optimizer behaves as before.

    Another process may hold its state. What the script saves has all of it.

    The optimizer gets its own class rather than an attribute, because schedulers and hooks wrap
    the step of the class. A scheduler made earlier has wrapped the old step as an attribute,
    which is removed.

    Args:
        whole_state: returns a context in which the optimizer has its whole state.
        loading_state: returns the context in which the script loads a state into the optimizer.
    """
    kind: Any = type(optimizer)
    optimizer.__dict__.pop("step", None)

    @_disable_dynamo
    def step(self: Any, closure: Closure = None) -> Any:
        self._opt_called = True  # schedulers check it
        with letting_it_end():
            return take_step(closure)

    def add_param_group(self: Any, param_group: dict[str, Any]) -> None:
        raise ConfigError(
            "a parameter group was added to the optimizer, but the run shares those that it had "
            f"{when_shared()}: add all groups before, or train with DistributedDataParallel and "
            "sync.kind=ssgd"
        )

    def load_state_dict(self: Any, state_dict: dict[str, Any]) -> None:
        with loading_state():
            kind.load_state_dict(self, state_dict)

    def state_dict(self: Any) -> Any:
        with whole_state():
            return kind.state_dict(self)

    def reduce(self: Any, _: Any) -> Any:
        """Copy as the original class; protocol 0, because protocols 2 and up check the class."""
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
        # GradScaler then always calls step(), and sets `found_inf` if the step is to be skipped.
        "_step_supports_amp_scaling": True,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    optimizer.__class__ = type(kind.__name__, (kind,), members)
