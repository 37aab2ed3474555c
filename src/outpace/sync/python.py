"""A strategy in a user's file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from outpace.errors import ConfigError
from outpace.support.paths import TARGET
from outpace.support.user_code import brief, load_target, require_target
from outpace.sync import Apply, Asp, PeerStrategy, Policy, Scale
from outpace.sync.conditions import Condition, Conditioned


@dataclass(frozen=True)
class PythonStrategy:
    """A strategy written by the user: `target` is `file.py:Class` or `module:Class`.

    The class is called with `arguments`. Like the built-in strategies, it is a frozen dataclass
    that derives from `sync.Policy`, or from `sync.PeerStrategy` for a strategy without servers.
    A policy can also be any class with the methods may_answer(pull, view) and
    patience_s(view), whose return values may be those of conditions (see `Conditioned`). What a
    class that derives from Policy declares (`lockstep`, `leaves_behind`, `uses_significance`) is
    heeded; of another class the least is assumed: the workers are not in lockstep, may be left
    behind, and their significance is used.

    Attributes:
        target: `file.py:Class` or `module:Class`.
        arguments: of the class.
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
        made: derives from `Policy`, or has the methods may_answer and patience_s.
        name: of the class, for errors.

    Raises:
        ConfigError: if the object is no policy.
    """
    pull, push = _method(made, "may_answer", name), _method(made, "patience_s", name)
    apply, scale = _word(made, "apply", Apply.ON_ARRIVAL), _word(made, "scale", Scale.MEAN)
    wire: Any = getattr(made, "wire", "full")
    try:
        base = made if isinstance(made, Policy) else Asp(apply=apply, scale=scale, wire=wire)
    except ValueError as error:
        raise ConfigError(f"sync.target: {name}: {error}") from error
    return Conditioned(base, pull, push, declares=base is made)


def _method(made: object, method: str, name: str) -> Condition:
    found = getattr(made, method, None)
    if not callable(found):
        raise ConfigError(
            f"sync.target: what {name} makes has no method {method}; it must be a "
            "policy of servers, or derive from outpace.sync.PeerStrategy"
        )
    return Condition(f"{name}.{method}", found)


_WordT = TypeVar("_WordT", Apply, Scale)


def _word(made: object, name: str, default: _WordT) -> _WordT:
    value = getattr(made, name, default)
    try:
        return type(default)(value)
    except ValueError:
        raise ConfigError(
            f"sync.target: its {name} cannot be {value!r}. Known: {', '.join(type(default))}."
        ) from None
