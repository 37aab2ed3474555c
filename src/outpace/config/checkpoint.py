"""When a run saves checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.support.checks import require


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
