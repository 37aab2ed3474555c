"""The state of a script's optimizer (momentum and the like) while its steps are taken elsewhere.

The script's own optimizer has no state then. What the script saves has all of it, and what it loads
goes to where the steps are taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from outpace.engine.scripts.model import ScriptModel
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
