"""Takes over a user's optimizer: `step`, and the methods that save and load its state.

While its steps are taken elsewhere, the script's own optimizer has no state (momentum and the
like). What the script saves has all of it, and what it loads goes to where the steps are taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeAlias

import torch
from torch._compile import _disable_dynamo

from outpace.engine.scripts.misuse import when_shared
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.running import letting_it_end
from outpace.errors import ConfigError
from outpace.optim.torch_optimizers import State


class Holder(Protocol):
    """The place in which steps are taken: servers, the worker itself, or the simulation."""

    @property
    def holds(self) -> bool:
        """False if the script's optimizer takes its steps itself."""

    @property
    def is_out(self) -> bool:
        """True after the script has left the run, and in processes that it forks."""

    def fetch(self) -> Mapping[int, State]:
        """Return the whole state by number of the parameter.

        Raises RunError in processes that the script forks.
        """

    def require_loadable(self) -> None:
        """Raise ConfigError if the state can no longer be replaced."""

    def replace(self) -> None:
        """Replace the state by that of the script's optimizer."""


class HeldState:
    """Moves the state between the script's optimizer and its holder.

    Until this worker's next step, the script's optimizer keeps a state that was loaded: the holder
    may not have it yet, or may get another worker's.
    """

    def __init__(self, script: ScriptModel, holder: Holder) -> None:
        self._script, self._holder = script, holder
        self._has_loaded = False  # True from `load_state_dict` to the next step
        # Digest of the state that the script has read since its last step, unless it was replaced.
        self._read_digest: str | None = None

    def begin(self) -> None:
        """Remove the state with which the script comes to the run, when the holder has it."""
        if self._holder.holds and not self._has_loaded:
            self._script.clear_state()

    def before_step(self) -> None:
        """Remove a state that was loaded since the last step."""
        self._read_digest = None
        if self._has_loaded:
            self._has_loaded = False
            self._script.clear_state()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Put the whole state into the script's optimizer, in this context.

        With servers it is theirs: after the same number of steps on all of them if all workers
        wait for each other, else as each server has it when it answers.
        """
        if self._has_loaded or not self._holder.holds:
            yield
            return
        optimizer, found = self._script.optimizer, self._holder.fetch()
        number = {id(p): n for n, p in enumerate(self._script.parameters)}
        before, optimizer.state = optimizer.state, defaultdict(dict)
        for parameter in (p for group in self._script.groups for p in group):
            if id(parameter) not in number:  # frozen: its state stays with the script
                state = before.get(parameter)
            else:
                state = found.get(number[id(parameter)])
            if state is not None:
                optimizer.state[parameter] = state
        self._read_digest = self._script.state_digest()
        try:
            yield
        finally:
            optimizer.state = before

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Hand the state that the script loads in this context to where the steps are taken.

        A state that the script has read and loads again before its next step changes nothing, as
        when accelerate wraps an optimizer: other workers may have taken steps in between.

        Raises:
            ConfigError: if the state can no longer be replaced.
        """
        holder = self._holder
        holder.require_loadable()
        yield
        self._has_loaded = False
        if not holder.holds:
            return
        if not holder.is_out and self._read_digest == self._script.state_digest():
            self._script.clear_state()
            return
        self._read_digest = None
        self._has_loaded = True
        if not holder.is_out:
            holder.replace()


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
