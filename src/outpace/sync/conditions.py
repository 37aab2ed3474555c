"""Conditions that a user writes to replace a policy's own.

The answers of a condition are checked, and errors name the condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Final

from outpace.errors import PolicyError
from outpace.predict.rules.settings import CutOffSettings
from outpace.support.checks import LARGEST, require
from outpace.support.paths import TARGET
from outpace.support.user_code import brief, load_target, require_target
from outpace.sync.decision import ASK_AGAIN, Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Buffer, Policy, Scale, ShardView

_MOST: Final = 2**62  # the trace stores 64-bit numbers
_OR_SECONDS: Final = ", or a float, the seconds to wait, at least 0"


@dataclass(frozen=True, slots=True)
class Condition:
    """A function written by the user, and its name for errors."""

    name: str
    function: Callable[..., Any]

    @staticmethod
    def of(function: Callable[..., Any] | str) -> Condition:
        """Return the condition of a function, or of a target such as `file.py:function`.

        Raises ConfigError.
        """
        if isinstance(function, str):
            return Condition(function, load_target(function, "condition"))
        return Condition(getattr(function, "__qualname__", repr(function)), function)

    def __call__(self, what: str, place: str, *arguments: Any) -> Any:
        """Return the function's answer. Raises PolicyError if it raises.

        Args:
            what: text of the question, for errors.
            place: where the condition is used, for errors.
        """
        try:
            return self.function(*arguments)
        except Exception as error:
            raise PolicyError(
                f"the condition {self.name} of {place} raised {brief(error)} {what}"
            ) from error

    def truth(self, answer: Any, what: str, place: str, others: str = "") -> bool:
        """Return the answer as a bool. Raises PolicyError if it is not one.

        others: further answers that are allowed, for the error.
        """
        if type(answer).__name__ in ("bool", "bool_"):  # numpy has a bool of its own
            return bool(answer)
        raise PolicyError(
            f"the condition {self.name} of {place} must answer true or false{others}, "
            f"not {answer!r} {what}"
        )

    def checked(self, decision: Decision, what: str, view: ShardView) -> Decision:
        """Return the decision. Raises PolicyError if one of its fields is out of range."""
        release, watch = decision.release_clock, decision.watch
        numbers = (decision.lead, decision.bound, watch, 0 if release is None else release)
        if (
            isinstance(decision.reason, Reason)
            and all(isinstance(n, int) and abs(n) < _MOST for n in numbers)
            and -1 <= watch < view.workers
        ):
            return decision
        raise PolicyError(
            f"the condition {self.name} of server {view.shard} returned an invalid decision "
            f"{what}: {decision}"
        )


@dataclass(frozen=True, slots=True)
class Conditioned(Policy):
    """A policy whose pull or push condition may be replaced by the user's.

    Attributes:
        base: the policy.
        pull: pull(pull, view) returns True, False or a Decision. If it returns False, the pull is
            filed in the policy's buffer and answered at the buffer's clock without a second call,
            as in FluentPS, algorithm 1. If the policy has no buffer, `pull` is called again
            whenever a worker has pushed or left.
        push: push(view) returns True if the shard may finish iteration V, else False; or it returns
            a float, the patience in seconds (`Policy.patience_s`).
        declares: True if the conditions are methods of `base`, which declares what they do. Nothing
            is known about other conditions: they may leave workers behind and use significance.

    `may_answer` and `patience_s` raise PolicyError if a condition raises an exception or returns
    something else.
    """

    base: Policy
    pull: Condition | None = None
    push: Condition | None = None
    declares: bool = False

    @property
    def policy(self) -> Policy:
        """The policy that servers follow: this one, or the base if there are no conditions."""
        return self.base if self.pull is None and self.push is None else self

    @property
    def _is_declared(self) -> bool:
        return self.declares or self.policy is self.base

    @property
    def kind(self) -> str:
        return self.base.kind

    @property
    def apply(self) -> Apply:
        return Apply(self.base.apply)  # a user's class may have text here

    @property
    def scale(self) -> Scale:
        return Scale(self.base.scale)

    @property
    def buffer(self) -> Buffer | None:
        buffer = self.base.buffer
        return None if buffer is None else Buffer(buffer)

    @property
    def lockstep(self) -> bool:
        return self._is_declared and self.base.lockstep

    @property
    def uses_significance(self) -> bool:
        # a condition may call `significance`
        return not self._is_declared or self.base.uses_significance

    @property
    def cut_off(self) -> CutOffSettings | None:
        return self.base.cut_off

    @property
    def scheduler(self) -> Policy | None:
        return self.base.scheduler

    @property
    def leaves_behind(self) -> bool:
        is_unknown = self.push is not None and not self.declares
        return is_unknown or self.base.leaves_behind

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        if self.pull is None:
            return self.base.may_answer(pull, view)
        what = f"for worker {pull.worker}'s pull of iteration {pull.iteration}"
        place = f"server {view.shard}"
        answer = self.pull(what, place, pull, view)
        if isinstance(answer, Decision):
            return self.pull.checked(answer, what, view)
        lead = pull.iteration - view.clock
        if self.pull.truth(answer, what, place):
            return Decision(None, Reason.CONDITION, lead)
        buffer = self.buffer
        release = ASK_AGAIN if buffer is None else buffer.release_clock(pull, view)
        return Decision(release, Reason.NO_CONDITION, lead)

    def patience_s(self, view: ShardView) -> float:
        if self.push is None:
            return self.base.patience_s(view)
        what, place = f"at clock {view.clock}", f"server {view.shard}"
        answer = self.push(what, place, view)
        if isinstance(answer, Real) and not isinstance(answer, Integral):
            patience_s = float(answer)
            if 0 <= patience_s <= LARGEST or patience_s == math.inf:
                return patience_s
        return 0.0 if self.push.truth(answer, what, place, _OR_SECONDS) else math.inf


@dataclass(frozen=True, slots=True)
class Conditions:
    """An entry of a configuration's `conditions`: conditions for some of the servers.

    Attributes:
        keys: pattern of the servers' names, such as `server-0`, `server-[12]` or `*`.
        pull, push: `file.py:function` or `module:function`, called as `pull(pull, view,
            **arguments)` and `push(view, **arguments)`; None: the policy's own condition is used.
        active: True if the conditions apply from the start of the run; otherwise they are only
            available to `Control.set_pull_condition` and `set_push_condition`.
        arguments: further arguments of the functions.
    """

    keys: str = "*"
    pull: str | None = field(default=None, metadata=TARGET)
    push: str | None = field(default=None, metadata=TARGET)
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

    def on(self, before: Conditioned) -> Conditioned:
        """Return the policy with these conditions instead of its own. Raises ConfigError."""
        pull, push = self._loaded("pull", self.pull), self._loaded("push", self.push)
        return replace(before, pull=pull or before.pull, push=push or before.push)

    def _loaded(self, key: str, target: str | None) -> Condition | None:
        if target is None:
            return None
        function = load_target(target, f"conditions.{key}")
        return Condition(
            target, partial(function, **self.arguments) if self.arguments else function
        )
