"""Chooses the clocks at which shards are saved, without stopping any process.

Without servers the workers take the place of shards, and the results of all-reduces that of the
clock.

The process that asks for an exact checkpoint does not know the clocks of the shards now. It asks
for a clock a little ahead of the last that it knows. A shard that is past it says so; then the
number of the checkpoint is given up at all shards, and a new one is asked for, twice as far ahead.

Where an iteration may be finished without a worker, that worker can be ahead of a slow server, so
that no state of this server is between two iterations. After twelve attempts all shards are saved
at once, as with strategies that do not wait for each iteration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from outpace.errors import ProtocolError

_LEAD: Final = 2  # iterations, at first
_MOST_LEAD: Final = 1 << 30
_TRIES: Final = 12  # the lead is then 8,192 iterations


@dataclass(frozen=True, slots=True)
class Order:
    """Tells a shard to save its state for a checkpoint: at this clock; None: at once."""

    shard: int
    number: int
    clock: int | None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tells a shard to forget this checkpoint, and to remove what it has saved for it."""

    shard: int
    number: int


class CutPlanner:
    """The checkpoints of a run with servers: which is open, and which shards it has.

    Does no IO: methods return the orders to send. At most one checkpoint is open at a time.

    Args:
        shards: their number.
        exact: True to save all shards at the same clock. May be changed between two checkpoints.
        number: of the last checkpoint.
        tries: attempts after which shards are saved at once; infinite for workers, which come to
            every number of results.
    """

    def __init__(self, shards: int, exact: bool, number: int = 0, tries: float = _TRIES) -> None:
        self.exact, self.number = exact, number
        self._shards, self._most_tries = set(range(shards)), tries
        self._missing: set[int] = set()  # shards that the open checkpoint lacks
        self._lead, self._clock = _LEAD, 0  # _clock: the last clock known
        self._target: int | None = None  # the clock asked for
        self._tries = 0  # attempts missed, one after the other

    @property
    def is_open(self) -> bool:
        """True while a checkpoint has been asked for and is neither whole nor given up."""
        return bool(self._missing)

    def begin(self, clock: int | None = None) -> list[Order]:
        """Ask for the next checkpoint; returns no orders while one is open, or if all have left.

        clock: at which to take an exact one; None: soon after the last clock known.
        """
        if self._missing or not self._shards:
            return []
        self.number += 1
        self._missing = set(self._shards)
        self._target = None
        if self.exact and self._tries < self._most_tries:
            self._target = self._clock + self._lead if clock is None else clock
        return [Order(shard, self.number, self._target) for shard in sorted(self._shards)]

    def saved(self, number: int, shard: int, clock: int = 0) -> bool:
        """Note that a shard is saved, at this clock; True if the checkpoint is whole now.

        Raises ProtocolError if the shard was not asked for, or had answered before.
        """
        if number < self.number or not self._missing:  # it was given up
            return False
        self._require_asked(number, shard)
        self._clock = max(self._clock, clock)
        self._missing.discard(shard)
        if self._missing:
            return False
        self._lead, self._tries = max(_LEAD, self._lead // 2), 0
        return True

    def awaits(self, number: int, shard: int) -> bool:
        """True if this shard was asked for this checkpoint, and has not answered yet."""
        return number == self.number and shard in self._missing

    def missed(self, number: int, shard: int, clock: int) -> list[Order | GiveUp]:
        """Return what to do when a shard was past the clock that it was asked for.

        Raises ProtocolError if the shard was not asked, or had answered before.
        """
        if number >= self.number and self._missing:
            self._require_asked(number, shard)
        self._clock = max(self._clock, clock)
        if number < self.number or not self._missing:
            return []
        self._tries += 1
        if clock != self._target:
            self._lead = min(2 * self._lead, _MOST_LEAD)
        return [*self.abandon(), *self.begin()]

    def abandon(self) -> list[GiveUp]:
        """Give up the open checkpoint, if there is one."""
        if not self._missing:
            return []
        self._missing.clear()
        return [GiveUp(shard, self.number) for shard in sorted(self._shards)]

    def join(self, shards: Iterable[int]) -> None:
        """Also ask these, from the next checkpoint on."""
        self._shards.update(shards)

    def leave(self, shard: int) -> list[GiveUp]:
        """Ask this one no more: it has ended. Gives the open checkpoint up."""
        self._shards.discard(shard)
        return self.abandon()

    def _require_asked(self, number: int, shard: int) -> None:
        if not self.awaits(number, shard):
            raise ProtocolError(
                f"shard {shard} answers for checkpoint {number}, which it was not asked for"
            )
