"""Partial push: waits for a quorum of workers, then a limited time for the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.support.checks import require
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policies.bsp import once_finished
from outpace.sync.policies.drop_stragglers import quorum_problems, require_quorum
from outpace.sync.policy import Apply, Policy, Scale, ShardView, quorum_arrived


@dataclass(frozen=True, slots=True)
class PartialPush(Policy):
    """Advances when all workers have pushed V, or τ1 seconds after c of them have (PSP-SGD).

    Later gradients are dropped. The paper's step is η times the sum: `scale: sum`.
    Raises ValueError if the quorum is below 1 or the timeout negative.
    """

    quorum: int  # c
    timeout_s: float = 0.0  # τ1
    kind: Literal["partial-push"] = "partial-push"
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN

    lockstep: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_quorum(self.quorum)
        require(0 <= self.timeout_s <= 1e9, "timeout_s", "from 0 to 1e9", self.timeout_s)

    def problems(self, workers: int) -> Iterator[str]:
        yield from Policy.problems(self, workers)
        yield from quorum_problems(self.quorum, workers)

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return once_finished(pull, view)

    def patience_s(self, view: ShardView) -> float:
        return quorum_arrived(view, self.quorum, self.timeout_s)
