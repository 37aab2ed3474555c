"""The moment at which the state of one process is taken for a checkpoint, when it is asked for.

Servers: where all workers wait for each iteration, a checkpoint is exact. Every shard is saved when
its clock becomes c, before any answer with that clock is sent. No worker can have pushed iteration
c then, so all shards have the same gradients, and the run continues from there as if it had not
been interrupted. With other strategies each shard is saved at once.

Workers without servers: where they average by all-reduces, all are saved when they have the same
number of results and have not joined the next all-reduce (`PeerContext.may_save`). They have
changed the common model alike then, and what each has beside it is in no other worker's state. A
worker that is past that place when it hears of the request says so, and never stops for it.

Scripts whose workers have servers: at the beginning of the iteration c, or of the first one after
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.sync.shard import Shard


@dataclass(frozen=True, slots=True)
class Place:
    """How far a process is. clock: of a shard; of a worker, the number of its results.

    can_save: its state now is that of this clock.
    """

    clock: int
    can_save: bool


def place_of(shard: Shard) -> Place:
    """Return how far a shard is."""
    return Place(shard.clock, shard.is_between_iterations)


class Cuts:
    """The request for the state of one process; a new one takes its place. Does no IO.

    Args:
        place: returns how far the process is.
        save: called with the number of the request when the state is to be taken.
        missed: called with the number of the request and the clock of the process, if its state at
            the clock that was asked for cannot be taken any more.
        or_later: the state at a later clock will do, if the process was not past the one that was
            asked for.
    """

    def __init__(
        self,
        place: Callable[[], Place],
        save: Callable[[int], None],
        missed: Callable[[int, int], None],
        *,
        or_later: bool = False,
    ) -> None:
        self._place, self._save, self._missed = place, save, missed
        self._or_later = or_later
        self._asked: tuple[int, int] | None = None  # number, and the clock to wait for

    def ask(self, number: int, clock: int | None = None) -> None:
        """Save the process at this clock; None: at once.

        To be called between two messages of a shard, or two steps of a worker. May call `save` or
        `missed` at once.
        """
        if clock is None:
            self._asked = None
            self._save(number)
        else:
            self._asked = number, clock
            self.look()

    def give_up(self, number: int) -> None:
        """Forget a request."""
        if self._asked is not None and self._asked[0] == number:
            self._asked = None

    def look(self) -> None:
        """Save the process if it is time to.

        A shard looks after each message, before its answers are sent.
        """
        if self._asked is None:
            return
        (number, clock), place = self._asked, self._place()
        if place.clock < clock:
            return
        self._asked = None
        if place.can_save and (place.clock == clock or self._or_later):
            self._save(number)
        else:
            self._missed(number, place.clock)


class WorkerCuts(Cuts):
    """The requests for the state of one worker, which can be saved at some places only.

    It can be whenever it says so; without servers also before its first iteration, at clock 0.
    """

    def __init__(
        self,
        save: Callable[[int], None],
        missed: Callable[[int, int], None],
        *,
        or_later: bool = False,
    ) -> None:
        super().__init__(lambda: self._at, save, missed, or_later=or_later)
        self._at = Place(-1, can_save=False) if or_later else Place(0, can_save=True)

    def pass_by(self, clock: int) -> None:
        """The worker is at this clock, and continues after this call."""
        self._at = Place(clock, can_save=True)
        self.look()
        self.pass_over(clock)

    def pass_over(self, clock: int) -> None:
        """The worker was at this clock, and its state then cannot be taken."""
        self._at = Place(clock, can_save=False)
        self.look()
