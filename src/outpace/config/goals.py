"""Settings for the end of a run, for evaluations, and for checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.support.checks import Count, Period, Positive, Share, check_ranges
from outpace.support.targets import Target


@dataclass(frozen=True, slots=True)
class Stop:
    """Limits of a run, which ends when it reaches the first of them.

        outpace.Stop(iterations=200, virtual_time_s=60)  # the earlier one ends the run

    Attributes:
        iterations: number of iterations; a worker leaves before it would start this iteration
            (counted from 0).
        virtual_time_s: seconds of virtual time.
        target_accuracy: test accuracy of an evaluation, in (0, 1]. For a script, an accuracy that
            it logs.
    """

    iterations: Count | None = None
    virtual_time_s: Positive | None = None
    target_accuracy: Share | None = None

    def __post_init__(self) -> None:
        check_ranges(self)

    def ends_at(self, accuracy: float | None) -> bool:
        """Return True if this accuracy on the curve of a run ends the run."""
        if self.target_accuracy is None:
            return False
        return Target(accuracy=self.target_accuracy).is_reached(accuracy, None)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """When the model is evaluated, in addition to the end of the run; takes no virtual time.

        outpace.Evaluate(every_s=1.0, samples=500)

    Attributes:
        every_updates: number of versions of shard 0 from one evaluation to the next.
        every_s: seconds of virtual time from one evaluation to the next.
        samples: largest number of samples, evenly spaced, from the training data (never more
            than 1,000) and from the test data (None: all).
    """

    every_updates: Count | None = None
    every_s: Period | None = None
    samples: Count | None = None

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """When the state of a run is saved, in addition to its start, and how many states are kept.

    Attributes:
        every_s: seconds from one checkpoint to the next, of virtual time or, in a real run, of wall
            time.
        every_updates: number of versions of shard 0 from one checkpoint to the next.
        keep: number of newest checkpoints that are kept; older ones are removed.

    Raises:
        ValueError: unless exactly one of every_s and every_updates is given.
    """

    every_s: Period | None = None
    every_updates: Count | None = None
    keep: Count = 3

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.every_s is None) == (self.every_updates is None):
            raise ValueError("needs exactly one of every_s and every_updates")
