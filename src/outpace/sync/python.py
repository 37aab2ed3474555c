"""A strategy in a user's file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from outpace.errors import ConfigError
from outpace.support.paths import TARGET
from outpace.support.user_code import brief, load_target, require_target
from outpace.sync import Apply, PeerStrategy, Policy, Scale
from outpace.sync.conditions import Condition, Conditioned


@dataclass(frozen=True)
class PythonStrategy:
    """A strategy written by the user: `target` is `file.py:Class` or `module:Class`.

    The class is called with `arguments`. Like the built-in strategies, it is a frozen dataclass
    that derives from `sync.Policy`, or from `sync.PeerStrategy` for a strategy without servers. A
    policy's may_answer and patience_s may also return the values that conditions return (see
    `Conditioned`).

    Attributes:
        target: `file.py:Class` or `module:Class`.
        arguments: arguments of the class.
    """

    target: str = field(metadata=TARGET)
    arguments: dict[str, Any] = field(default_factory=dict)
    kind: Literal["python"] = "python"

    def __post_init__(self) -> None:
        require_target(self.target)

    def __reduce__(self) -> tuple[Any, ...]:
        # Cached properties are left out: each process loads the user's file itself.
        return type(self), (self.target, self.arguments)

    @property
    def strategy(self) -> Policy | PeerStrategy:
        """The user's strategy. Raises ConfigError if it cannot be loaded or made."""
        made = self._made
        return made.base if isinstance(made, Conditioned) else made

    @property
    def policy(self) -> Conditioned:
        """The user's policy, with its answers checked; only for a strategy with servers."""
        made = self._made
        assert isinstance(made, Conditioned)
        return made

    @cached_property
    def _made(self) -> Conditioned | PeerStrategy:
        make = load_target(self.target, "sync.target")
        try:
            made = make(**self.arguments)
        except Exception as error:
            raise ConfigError(f"sync.target: {self.target} raised {brief(error)}") from error
        if isinstance(made, PeerStrategy):
            return made
        return policy_from(made, self.target)


def policy_from(made: object, name: str) -> Conditioned:
    """Return an object of the user's class as a policy whose answers are checked.

    Args:
        name: name of the class, for errors.

    Raises:
        ConfigError: if the object is not a policy.
    """
    if not isinstance(made, Policy):
        raise _refusal(made, name)
    try:
        Apply(made.apply), Scale(made.scale)
    except ValueError as error:
        raise ConfigError(f"sync.target: {name}: {error}") from error
    pull = Condition(f"{name}.may_answer", made.may_answer)
    push = Condition(f"{name}.patience_s", made.patience_s)
    return Conditioned(made, pull, push, declares=True)


def peers_from(made: object, name: str) -> PeerStrategy:
    """Return an object of the user's class as a strategy without servers; see `policy_from`."""
    if not isinstance(made, PeerStrategy):
        raise _refusal(made, name)
    return made


def _refusal(made: object, name: str) -> ConfigError:
    if isinstance(made, type):
        own = made.__name__
        return ConfigError(f"{own} is a class: give an object of it, such as {own}(...)")
    if isinstance(made, Policy):
        return ConfigError(f"{name} is a strategy with servers: outpace.testing.check_policy")
    return ConfigError(
        f"sync.target: {name} makes a {type(made).__name__}: it must derive from "
        "outpace.sync.Policy, or without servers from outpace.sync.PeerStrategy"
    )
