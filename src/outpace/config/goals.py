"""When a run ends, when the model is evaluated, and when checkpoints are saved."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.support.checks import positive, require, require_number
from outpace.support.targets import Target


@dataclass(frozen=True, slots=True)
class Stop:
    """Limits of a run, which ends when the first of them is reached.

    Attributes:
        iterations: a worker leaves before it would start this iteration (counted from 0).
        virtual_time_s: seconds of virtual time.
        target_accuracy: test accuracy of an evaluation, in (0, 1]. For a script, an accuracy that
            it logs.
    """

    iterations: int | None = None
    virtual_time_s: float | None = None
    target_accuracy: float | None = None

    def __post_init__(self) -> None:
        require_number("iterations", self.iterations, whole=True)
        require_number("virtual_time_s", self.virtual_time_s)
        require_number("target_accuracy", self.target_accuracy)
        iterations, time_s, accuracy = self.iterations, self.virtual_time_s, self.target_accuracy
        require(iterations is None or iterations > 0, "iterations", "at least 1", iterations)
        must = "a positive number of seconds, at most 1e9"
        require(time_s is None or positive(time_s), "virtual_time_s", must, time_s)
        require(accuracy is None or 0 < accuracy <= 1, "target_accuracy", "in (0, 1]", accuracy)

    def ends_at(self, accuracy: float | None) -> bool:
        """Return True if an accuracy on the curve of the run ends it."""
        if self.target_accuracy is None:
            return False
        return Target(accuracy=self.target_accuracy).is_reached(accuracy, None)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """When the model is evaluated, besides at the end of the run; takes no virtual time.

    Attributes:
        every_updates: versions of shard 0 from one evaluation to the next.
        every_s: seconds of virtual time from one evaluation to the next.
        samples: largest number of samples, evenly spaced, from the training data (never more
            than 1,000) and from the test data (None: all).
    """

    every_updates: int | None = None
    every_s: float | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        require_number("every_updates", self.every_updates, whole=True)
        require_number("every_s", self.every_s)
        require_number("samples", self.samples, whole=True)
        updates, every_s, samples = self.every_updates, self.every_s, self.samples
        require(samples is None or samples > 0, "samples", "at least 1", samples)
        require(updates is None or updates > 0, "every_updates", "at least 1", updates)
        require(every_s is None or 1e-6 <= every_s <= 1e9, "every_s", "from 1e-6 to 1e9", every_s)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """When the state of a run is saved, besides at its start, and how many states are kept.

    Attributes:
        every_s: seconds from one checkpoint to the next, of virtual time or, in a real run, of wall
            time.
        every_updates: versions of shard 0 from one checkpoint to the next.
        keep: number of checkpoints that stay; older ones are removed.

    Raises:
        ValueError: unless exactly one of every_s and every_updates is given.
    """

    every_s: float | None = None
    every_updates: int | None = None
    keep: int = 3

    def __post_init__(self) -> None:
        if (self.every_s is None) == (self.every_updates is None):
            raise ValueError("needs exactly one of every_s and every_updates")
        if self.every_s is not None:
            require(1e-6 <= self.every_s <= 1e9, "every_s", "from 1e-6 to 1e9", self.every_s)
        if self.every_updates is not None:
            require(self.every_updates > 0, "every_updates", "at least 1", self.every_updates)
        require(self.keep > 0, "keep", "at least 1", self.keep)
