"""Policies and conditions that a user has written.

What they answer is checked, and what they raise says which of them it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from outpace.errors import ConfigError, PolicyError
from outpace.support.checks import LARGEST, require
from outpace.support.user_code import absolute_target, brief, load_target, require_target
from outpace.sync import ASK_AGAIN, Apply, Asp, Decision, Policy, Reason, Scale, ShardView
from outpace.sync.messages import Pull

_MOST: Final = 2**62  # the trace keeps numbers in 64 bits


@dataclass(frozen=True, slots=True)
class PythonPolicy:
    """A policy class of the user's: `target` is `file.py:Class` or `module:Class`.

    It is called with `arguments`. What it makes has the methods may_answer(pull, view) and
    patience_s(view) of a `sync.Policy`, or of a condition (see `Conditioned`), and, if it
    will, `apply` and `scale`.
    """

    target: str
    arguments: dict[str, Any] = field(default_factory=dict)
    kind: Literal["python"] = "python"

    def __post_init__(self) -> None:
        require_target(self.target)

    def absolute(self, folder: Path) -> PythonPolicy:
        """With the path of its file seen from `folder`."""
        return replace(self, target=absolute_target(self.target, folder))

    def made(self) -> Conditioned:
        """Make it. Raises ConfigError if that cannot be done."""
        make = load_target(self.target, "sync.target")
        try:
            policy = make(**self.arguments)
        except Exception as error:
            raise ConfigError(f"sync.target: {self.target} raised {brief(error)}") from error
        base = Asp(
            apply=_own(policy, "apply", Apply.ON_ARRIVAL), scale=_own(policy, "scale", Scale.MEAN)
        )
        pull, push = self._method(policy, "may_answer"), self._method(policy, "patience_s")
        return Conditioned(base, pull, push, kind="python")

    def _method(self, policy: object, name: str) -> Condition:
        method = getattr(policy, name, None)
        if not callable(method):
            raise ConfigError(f"sync.target: what {self.target} makes has no method {name}")
        return Condition(f"{self.target}.{name}", method)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of the user's on the servers that `keys` names (`strategy.matching`).

    pull, push: `file.py:function` or `module:function`; None: the policy's own. They are
    called as `Conditioned` says, with `arguments` beside. active: from the start of the run;
    else only known to it, for `Control.set_pull_condition` and the like.
    """

    keys: str = "*"
    pull: str | None = None
    push: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    active: bool = True

    def __post_init__(self) -> None:
        for target in (self.pull, self.push):
            if target is not None:
                require_target(target)
        require(
            self.pull is not None or self.push is not None,
            "pull, push",
            "the name of a function, at least one of them",
            "null",
        )

    def absolute(self, folder: Path) -> Conditions:
        """With the paths of its files seen from `folder`."""
        pull, push = (t and absolute_target(t, folder) for t in (self.pull, self.push))
        return replace(self, pull=pull, push=push)

    def on(self, followed: Followed) -> Followed:
        """The same under these conditions. Raises ConfigError if they cannot be found."""
        pull, push = self._loaded("pull", self.pull), self._loaded("push", self.push)
        return replace(followed, pull=pull or followed.pull, push=push or followed.push)

    def _loaded(self, key: str, target: str | None) -> Condition | None:
        if target is None:
            return None
        function = load_target(target, f"conditions.{key}")
        return Condition(
            target, partial(function, **self.arguments) if self.arguments else function
        )


@dataclass(frozen=True, slots=True)
class Condition:
    """A function and what to call it in errors."""

    name: str
    function: Callable[..., Any]

    @staticmethod
    def of(function: Callable[..., Any] | str, key: str = "condition") -> Condition:
        """From a function, or from its name. Raises ConfigError, with the key."""
        if isinstance(function, str):
            return Condition(function, load_target(function, key))
        return Condition(getattr(function, "__qualname__", repr(function)), function)

    def __call__(self, what: str, server: int, *told: Any) -> Any:
        try:
            return self.function(*told)
        except Exception as error:
            raise PolicyError(
                f"the condition {self.name} of server {server} raised {brief(error)} {what}"
            ) from error

    def truth(self, answer: Any, what: str, server: int) -> bool:
        """Raises PolicyError unless the answer is one."""
        if type(answer).__name__ in ("bool", "bool_"):  # numpy has its own
            return bool(answer)
        raise PolicyError(
            f"the condition {self.name} of server {server} must answer true or false, "
            f"not {answer!r} {what}"
        )

    def sound(self, decision: Decision, what: str, view: ShardView) -> Decision:
        """Raises PolicyError for a decision that is none."""
        release, watch = decision.release_clock, decision.watch
        numbers = (decision.lead, decision.bound, watch, 0 if release is None else release)
        if (
            isinstance(decision.reason, Reason)
            and all(isinstance(n, int) and abs(n) < _MOST for n in numbers)
            and -1 <= watch < view.workers
        ):
            return decision
        raise PolicyError(
            f"the condition {self.name} of server {view.shard} gave what is no decision: "
            f"{decision} {what}"
        )


@dataclass(frozen=True, slots=True)
class Conditioned:
    """A policy with a condition of the user's in the place of its own, or two.

    pull(pull, view): may it be answered? True, False or a Decision; it is asked again
    whenever anybody has pushed or left, until it says yes. push(view): may the shard finish
    iteration V? True, False, or as a float seconds of patience (`sync.Policy.patience_s`).
    Raises PolicyError if they do, or answer something else.
    """

    base: Policy
    pull: Condition | None
    push: Condition | None
    kind: str

    @property
    def apply(self) -> Apply:
        return self.base.apply

    @property
    def scale(self) -> Scale:
        return self.base.scale

    @property
    def uses_significance(self) -> bool:
        return True

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        if self.pull is None:
            return self.base.may_answer(pull, view)
        what = f"for worker {pull.worker}'s pull of iteration {pull.iteration}"
        answer = self.pull(what, view.shard, pull, view)
        if isinstance(answer, Decision):
            return self.pull.sound(answer, what, view)
        lead = pull.iteration - view.clock
        if self.pull.truth(answer, what, view.shard):
            return Decision(None, Reason.CONDITION, lead)
        return Decision(ASK_AGAIN, Reason.NO_CONDITION, lead)

    def patience_s(self, view: ShardView) -> float:
        if self.push is None:
            return self.base.patience_s(view)
        what = f"at clock {view.clock}"
        answer = self.push(what, view.shard, view)
        if isinstance(answer, Real) and not isinstance(answer, Integral):
            patience_s = float(answer)
            if 0 <= patience_s <= LARGEST or patience_s == math.inf:
                return patience_s
        return 0.0 if self.push.truth(answer, what, view.shard) else math.inf


@dataclass(frozen=True, slots=True)
class Followed:
    """What a server follows: a policy, and conditions of the user's that go before its own."""

    base: Policy
    pull: Condition | None = None
    push: Condition | None = None

    @property
    def policy(self) -> Policy:
        """All of it as one policy."""
        if self.pull is None and self.push is None:
            return self.base
        return Conditioned(self.base, self.pull, self.push, self.base.kind)


_WordT = TypeVar("_WordT", Apply, Scale)


def _own(policy: object, name: str, default: _WordT) -> _WordT:
    value = getattr(policy, name, default)
    try:
        return type(default)(value)
    except ValueError:
        raise ConfigError(
            f"sync.target: its {name} cannot be {value!r}. Known: {', '.join(type(default))}."
        ) from None
