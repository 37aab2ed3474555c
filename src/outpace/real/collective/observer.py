"""The interface through which a real run follows the collectives of its script."""

from __future__ import annotations

from outpace.engine.distributed.call import Call
from outpace.support.units import Time


class Observer:
    """Is told when the collectives of a script happen, and does nothing.

    Times are values of `time.monotonic_ns`, which differs between machines. Run time does not.
    """

    @property
    def now(self) -> Time:
        """The time of the run, which is nearly the same for all workers; 0 before it."""
        return 0

    def begins(self, call: Call) -> None:
        """Called before a call is given to its backend; may wait."""

    def has_seen_end(self) -> bool:
        """True if this worker knows that the run is over."""
        return False

    def ends(self) -> None:
        """Called when all workers have learnt, in the same collective, that the run is over."""

    def exchanged(self, computed: int, joined: int, arrived: int) -> None:
        """Called when all buckets of a backward pass have arrived.

        Args:
            computed: when this worker had handed the last bucket over, or its backward pass ended.
            joined: run time at which the latest worker gave its last bucket to Gloo, by the
                clock of that worker.
        """

    def attend(self) -> bool:
        """Handle what other workers want of this one while it waits; False if they want nothing.

        Called again and again while the script waits for another collective than those of buckets.
        """
        return False

    def waited(self, call: Call, begun: int, ended: int) -> None:
        """Called after the script has waited for a collective that is no gradient bucket."""

    def broken(self, call: Call) -> None:
        """Called when a collective has failed. Raises RunOver if the run has ended."""

    def missed(self, call: Call, begun: int) -> None:
        """The script has waited since `begun` for a worker that came to the end of the run.

        Raises RunOver.
        """
