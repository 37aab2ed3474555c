"""Decides when each part of a checkpoint is requested, without stopping any process or doing IO.

A *part* is the state that one process saves: a server's shard, or the model or the script's state
of a worker. Some parts may be requested later than others. Each part of the open checkpoint has a
state; events change it, and methods return the orders that follow:

| state | the others are saved | is saved | is past the clock | leaves      |
|-------|----------------------|----------|-------------------|-------------|
| held  | asked: `Take`        | refused  | refused           | is left out |
| asked |                      | saved    | all: `GiveUp`     | is left out |
| saved |                      | refused  | refused           | stays       |

A part is *saved* when its files are on the disk. When all parts are saved the checkpoint is
`Whole`. After a checkpoint that was given up, another checkpoint is due.

The process that asks for an exact checkpoint does not know the clocks of the shards now: it
requests a clock a little ahead of the last known clock. A shard that is past this clock reports it.
Then this checkpoint is given up, and the next one is requested twice as far ahead. If the policy
may finish an iteration without a worker, that worker can be ahead of a slow server, so that this
server is never between two iterations. After twelve attempts all shards are saved at once, as with
strategies that do not wait for each iteration. Without servers the clock is the number of
all-reduce results, and every worker reaches each number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from outpace.errors import ProtocolError

_LEAD: Final = 2  # number of iterations at first
_MOST_LEAD: Final = 1 << 30
_TRIES: Final = 12  # the last of these leads is 8,192 iterations


@dataclass(frozen=True, slots=True)
class Take:
    """Tells a process to save its state for a checkpoint. clock: None: at once."""

    part: str
    number: int
    clock: int | None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tells a process to forget this checkpoint and its part of it."""

    part: str
    number: int


@dataclass(frozen=True, slots=True)
class Whole:
    """Tells that this checkpoint has all its parts."""

    number: int


Order: TypeAlias = Take | GiveUp | Whole


class PartState(Enum):
    """How far a part of the open checkpoint is; see the head of the file."""

    HELD = auto()
    ASKED = auto()
    SAVED = auto()


class CutPlanner:
    """The checkpoints of a run: the open one, and how far each of its parts is.

    At most one checkpoint is open at a time.

    Args:
        parts: names of the processes that are saved.
        exact: True to save all parts at the same clock. May be changed between two checkpoints.
        number: number of the last checkpoint.
        tries: attempts after which parts are saved at once.

    Attributes:
        is_due: True if the caller of `begin` is to begin another checkpoint.
    """

    def __init__(
        self, parts: Iterable[str], exact: bool, number: int = 0, tries: float = _TRIES
    ) -> None:
        self.exact, self.number, self.is_due = exact, number, False
        self._names, self._most_tries = list(parts), tries
        self._parts: dict[str, PartState] = {}  # number of the open checkpoint
        self._lead, self._clock = _LEAD, 0  # _clock: the last clock known
        self._tries = 0  # number of missed attempts in a row

    @property
    def is_open(self) -> bool:
        """True while a checkpoint was requested and is not complete and not given up."""
        return bool(self._parts)

    @property
    def is_exact_next(self) -> bool:
        """True if the next checkpoint is requested at a clock."""
        return self.exact and self._tries < self._most_tries

    def state(self, part: str) -> PartState | None:
        """Return how far a part of the open checkpoint is; None: it has no such part."""
        return self._parts.get(part)

    # -- the open checkpoint -----------------------------------------------------------

    def begin(self, clock: int | None = None, later: Collection[str] = ()) -> list[Order]:
        """Request the next checkpoint; return no orders if one is open, or if all have left.

        Args:
            clock: clock of an exact checkpoint, which is later if one was missed; None: soon after
                the last known clock.
            later: parts that are requested once the others are saved.
        """
        if self._parts or not self._names:
            return []
        self.number, self.is_due = self.number + 1, False
        ahead = self._clock + self._lead
        if clock is None:
            clock = ahead
        elif self._tries:
            clock = max(clock, ahead)
        self._target = clock if self.is_exact_next else None
        self._parts = dict.fromkeys(self._names, PartState.HELD)
        return self._ask([part for part in self._names if part not in later]) or self._go_on()

    def _ask(self, parts: Iterable[str]) -> list[Order]:
        orders: list[Order] = []
        for part in parts:
            self._parts[part] = PartState.ASKED
            orders.append(Take(part, self.number, self._target))
        return orders

    def _go_on(self) -> list[Order]:
        """Request the held parts once all others are saved; close a whole checkpoint."""
        states = self._parts.values()
        if not states or PartState.ASKED in states:
            return []
        if held := [part for part, state in self._parts.items() if state is PartState.HELD]:
            return self._ask(held)
        self._parts.clear()
        self._lead, self._tries = max(_LEAD, self._lead // 2), 0
        return [Whole(self.number)]

    def abandon(self) -> list[GiveUp]:
        """Give up the open checkpoint, if there is one."""
        told = [part for part, state in self._parts.items() if state is not PartState.HELD]
        self._parts.clear()
        return [GiveUp(part, self.number) for part in told]

    def _give_up(self) -> list[GiveUp]:
        self.is_due = self.is_due or self.is_open
        return self.abandon()

    # -- what processes say --------------------------------------------------------------

    def require_asked(self, number: int, part: str) -> None:
        """Raise ProtocolError unless this part was asked for, and has not answered."""
        if number != self.number or self.state(part) is not PartState.ASKED:
            raise ProtocolError(f"it answers for checkpoint {number}, which it was not asked for")

    def _is_over(self, number: int) -> bool:
        """True if this checkpoint was given up, or is whole."""
        return number < self.number or not self._parts

    def saved(self, number: int, part: str, clock: int = 0) -> list[Order]:
        """Note that a part is saved, at this clock. Raises ProtocolError; see the table."""
        if self._is_over(number):
            return []
        self.require_asked(number, part)
        self._clock = max(self._clock, clock)
        self._parts[part] = PartState.SAVED
        return self._go_on()

    def missed(self, number: int, part: str, clock: int) -> list[GiveUp]:
        """Note that a part was past the requested clock; return orders to give the checkpoint up.

        Another checkpoint is then due. Raises ProtocolError in the states that the table names.
        """
        if not self._is_over(number):
            self.require_asked(number, part)
        self._clock = max(self._clock, clock)
        if self._is_over(number):
            return []
        self._tries += 1
        if clock != self._target:
            self._lead = min(2 * self._lead, _MOST_LEAD)
        return self._give_up()

    # -- processes that come and go ------------------------------------------------------

    def leave(self, part: str) -> Sequence[Order]:
        """Do not request this part any more; the open checkpoint does not need it."""
        self._forget(part)
        if self.state(part) in (PartState.HELD, PartState.ASKED):
            del self._parts[part]
        return self._go_on()

    def end(self, part: str) -> Sequence[Order]:
        """Do not request this part any more; the open checkpoint needs it, so it is given up."""
        self._forget(part)
        return self._give_up()

    def replace(self, part: str) -> Sequence[Order]:
        """Note that another process has taken the place of a part's process."""
        return self._ask([part]) if self.state(part) is PartState.ASKED else []

    def _forget(self, part: str) -> None:
        self._names = [name for name in self._names if name != part]
