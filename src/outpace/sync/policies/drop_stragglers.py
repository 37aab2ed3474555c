"""Finishes an iteration without the slowest workers, and drops their late gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.support.checks import require
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Policy, Scale, ShardView, bounded, quorum_arrived


@dataclass(frozen=True, slots=True)
class Quorum(Policy):
    """The base of policies that finish an iteration when a quorum of workers has pushed it."""

    quorum: int

    lockstep: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.quorum >= 1, "quorum", "at least 1", self.quorum)

    def problems(self, workers: int) -> Iterator[str]:
        yield from Policy.problems(self, workers)
        if self.quorum > workers:
            yield f"quorum must be at most {workers}, the number of workers, not {self.quorum}"

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return bounded(pull, view, 0)

    def patience_s(self, view: ShardView) -> float:
        return quorum_arrived(view, self.quorum)


@dataclass(frozen=True, slots=True)
class DropStragglers(Quorum):
    """Answers i < V and advances once N_t workers have pushed V (FluentPS, table III).

    A worker whose gradient was dropped continues with the shard's current iteration.
    Args:
        quorum: N_t, at least 1.

    Raises:
        ValueError: if the quorum is below 1.
    """

    kind: Literal["drop-stragglers"] = "drop-stragglers"
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN
