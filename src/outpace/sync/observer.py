"""The interface through which a shard reports its work, for instance to the trace."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

from outpace.support.units import Time

if TYPE_CHECKING:
    from outpace.sync.decision import Decision
    from outpace.sync.messages import Pull, Push, Reply

# no message released the pull: it was answered at once, by time-out, or by a change of policy
NO_WORKER: Final = -1


class Outcome(enum.IntEnum):
    """The outcome of a push. Traces contain the numbers: never reuse one."""

    APPLIED = 0
    DROPPED = 1  # the push was late: the shard had finished its iteration
    ABSTAINED = 2  # the push carried no gradient
    REPEATED = 3  # the push was a repetition
    PENDING = 4  # the run ended before the gradient was applied
    SKIPPED = 5  # the worker chose not to send its gradient


class ShardObserver(Protocol):
    """Receives reports of what a shard does. Times are in ns since the start of the run."""

    def push_settled(
        self, shard: int, push: Push, arrived: Time, settled: Time, outcome: Outcome, staleness: int
    ) -> None:
        """Report the outcome of a push. staleness: -1 if it was not applied."""

    def pull_answered(
        self, reply: Reply, arrived: Time, decision: Decision, released_by: int
    ) -> None:
        """Report an answered pull.

        Args:
            released_by: the worker whose message released the pull, or NO_WORKER.
        """

    def pull_abandoned(self, shard: int, pull: Pull, arrived: Time, decision: Decision) -> None:
        """Report a held pull that gets no answer, because the run ended or its worker left."""
