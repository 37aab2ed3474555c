"""Finishes an iteration without the slowest workers, and drops their late gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.support.checks import require
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policies.bsp import once_finished
from outpace.sync.policy import Apply, Policy, Scale, ShardView, quorum_arrived


@dataclass(frozen=True, slots=True)
class DropStragglers(Policy):
    """Answers i < V and advances once N_t workers have pushed V (FluentPS, table III).

    A worker whose gradient was dropped continues with the shard's current iteration.
    Raises ValueError unless the quorum is at least 1.
    """

    quorum: int  # N_t
    kind: Literal["drop-stragglers"] = "drop-stragglers"
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN

    lockstep: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_quorum(self.quorum)

    def problems(self, workers: int) -> Iterator[str]:
        yield from Policy.problems(self, workers)
        yield from quorum_problems(self.quorum, workers)

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return once_finished(pull, view)

    def patience_s(self, view: ShardView) -> float:
        return quorum_arrived(view, self.quorum)


def require_quorum(quorum: int) -> None:
    """Raise ValueError unless the quorum is at least 1."""
    require(quorum >= 1, "quorum", "at least 1", quorum)


def quorum_problems(quorum: int, workers: int) -> Iterator[str]:
    """Yield a line if the quorum exceeds the number of workers."""
    if quorum > workers:
        yield f"quorum must be at most {workers}, the number of workers, not {quorum}"
