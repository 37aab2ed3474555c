"""Finishes an iteration without the slowest workers, and drops their late gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from outpace.support.checks import Count, Percent, check_ranges
from outpace.support.shares import share_of
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policy import Apply, Policy, Scale, ShardView, WirePolicy, bounded, quorum_arrived


@dataclass(frozen=True, slots=True)
class Quorum(WirePolicy):
    """The base of policies that finish an iteration when a quorum of workers has pushed it.

    Exactly one of the two quorums must be given. The configuration of a run contains the number.

    Args:
        quorum: number of workers, at least 1.
        quorum_percent: share of the workers, rounded up, above 0 and at most 100.

    Raises:
        ValueError: unless exactly one quorum is given and in its range.
    """

    quorum: Count | None = None
    quorum_percent: Percent | None = field(default=None, kw_only=True)

    lockstep: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.quorum is None) == (self.quorum_percent is None):
            raise ValueError(
                "needs exactly one of quorum, a number of workers, and quorum_percent, a share"
            )

    def for_workers(self, workers: int) -> Self:
        if self.quorum_percent is None:
            return self
        quorum = share_of(workers, self.quorum_percent)
        return replace(self, quorum=quorum, quorum_percent=None)

    def problems(self, workers: int) -> Iterator[str]:
        yield from Policy.problems(self, workers)
        if self.quorum is not None and self.quorum > workers:
            yield f"quorum must be at most {workers}, the number of workers, not {self.quorum}"

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return bounded(pull, view, 0)

    def patience_s(self, view: ShardView) -> float:
        return quorum_arrived(view, self.number)

    @property
    def number(self) -> int:
        """The number of workers in the quorum. Raises ValueError if it is an unresolved share."""
        if self.quorum is None:
            raise ValueError("quorum_percent: call for_workers first")
        return self.quorum


@dataclass(frozen=True, slots=True)
class DropStragglers(Quorum):
    """Answers i < V and advances once N_t workers have pushed V (FluentPS, table III).

        outpace.sync.DropStragglers(quorum=14)  # sync: {kind: drop-stragglers, quorum: 14}

    A worker whose gradient was dropped continues with the shard's current iteration.

    Args:
        quorum: N_t, at least 1.
        quorum_percent: N_t as a share of the workers; in place of `quorum`.

    Raises:
        ValueError: if the quorum is out of range, or not given exactly once.
    """

    kind: Literal["drop-stragglers"] = "drop-stragglers"
    apply: Apply = Apply.ON_ADVANCE
    scale: Scale = Scale.MEAN
