"""What a shard reports of its work; the trace listens."""

from __future__ import annotations

import enum
from typing import Final, Protocol

from outpace.support.units import Time
from outpace.sync.decision import Decision

NOBODY: Final = -1  # released by no message: at once, by time, or by a change of policy


class Outcome(enum.IntEnum):
    """What became of a push. The numbers are in traces: never reuse one."""

    APPLIED = 0
    DROPPED = 1  # too late: its iteration was finished without it
    ABSTAINED = 2  # it carried no gradient
    REPEATED = 3  # seen before
    PENDING = 4  # the run ended before it was applied


class ShardObserver(Protocol):
    """Hears what a shard does."""

    def push_settled(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        settled: Time,
        version: int,
        outcome: Outcome,
        staleness: int,
    ) -> None:
        """A push got its outcome. `version` is the one it read; staleness is -1 if unapplied."""

    def pull_answered(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        answered: Time,
        version: int,
        clock: int,
        decision: Decision,
        released_by: int,
    ) -> None:
        """A pull was answered; `released_by` is the worker whose message did it, or NOBODY."""

    def pull_abandoned(
        self, shard: int, worker: int, iteration: int, arrived: Time, decision: Decision
    ) -> None:
        """The run ended, or its worker left, while this pull was held."""

    def updated(self, shard: int, version: int) -> None:
        """The parameters have a new version."""
