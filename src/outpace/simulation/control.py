"""Changes of policies in virtual time, from the configuration and by the user's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from outpace.engine.control import ConditionLike, Control
from outpace.kernel import Mailbox
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time
from outpace.sync import Policy
from outpace.sync.assignment import Sync, policy_of
from outpace.sync.conditions import Condition, Conditioned
from outpace.sync.messages import Message, SetPolicy


class SimulationControl(Control):
    """Puts changes of policies into the servers' mailboxes, in zero virtual time.

    Args:
        mailboxes: mailboxes of the servers; empty: there are none.
    """

    def __init__(self, run: VirtualRun, mailboxes: Sequence[Mailbox[Message]]) -> None:
        super().__init__(run.experiment, run.events)
        self._run, self._kernel, self._mailboxes = run, run.kernel, mailboxes
        policies = run.experiment.policies
        self._followed = policies.initial() if mailboxes else []
        for time, server, policy in policies.later():
            if run.resume is not None and time <= self._kernel.now:  # before the checkpoint
                self._followed[server] = replace(self._followed[server], base=policy)
            else:
                self._kernel.call_at(time, self._take, (server, policy))

    def policy(self, server: int) -> Policy:
        """Return the policy that a server follows now."""
        return self._followed[server].policy

    def summary(self) -> dict[str, Any]:
        return self._run.totals.summary(self._experiment.workers)

    def _now(self) -> Time:
        return self._kernel.now

    def _call_at(self, time: Time, action: Callable[[object], None]) -> None:
        self._kernel.call_at(time, action)

    def _take(self, change: tuple[int, Policy]) -> None:
        server, policy = change
        self._policy_set(server, policy.kind)
        self._set_base(server, policy)

    def _set_policy(self, server: int, sync: Sync) -> None:
        self._set_base(server, policy_of(sync))

    def _set_base(self, server: int, policy: Policy) -> None:
        self._follow(server, replace(self._followed[server], base=policy))

    def _set_condition(self, server: int, which: str, condition: ConditionLike) -> None:
        found = None if condition is None else Condition.of(condition)
        before = self._followed[server]
        after = replace(before, pull=found) if which == "pull" else replace(before, push=found)
        self._follow(server, after)

    def _follow(self, server: int, followed: Conditioned) -> None:
        self._followed[server] = followed
        self._mailboxes[server].put(SetPolicy(followed.policy))
