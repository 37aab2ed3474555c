"""A policy without its pull condition: for servers behind a global barrier."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Policy, Scale, ShardView


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Answers every pull at once, and advances and applies as `policy` does.

    Whoever pulls has been let through the barrier already, by the same policy.
    """

    policy: Policy

    @property
    def kind(self) -> str:
        return self.policy.kind

    @property
    def apply(self) -> Apply:
        return self.policy.apply

    @property
    def scale(self) -> Scale:
        return self.policy.scale

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return Decision(None, Reason.UNBOUNDED, pull.iteration - view.clock)

    def patience_s(self, view: ShardView) -> float:
        return self.policy.patience_s(view)
