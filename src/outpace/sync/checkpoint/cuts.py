"""Chooses the moment at which the state of one process is taken for a checkpoint.

Servers: if all workers wait for each iteration, a checkpoint is exact. Every shard is saved when
its clock becomes c, before any answer with that clock is sent. No worker can have pushed iteration
c then, so all shards have the same gradients, and the run continues from there as if it had not
been interrupted. With other strategies each shard is saved at once.

Workers without servers: if they average by all-reduces, all are saved when they have the same
number of results and have not joined the next all-reduce (`PeerContext.may_save`). At that place
they have made the same changes to the common model, and everything else that a worker has is in no
other worker's state. A worker that is past that place when the request arrives reports this and
does not stop.

Scripts with servers: at the beginning of iteration c, or of the first later iteration that begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.sync.shard import Shard


@dataclass(frozen=True, slots=True)
class Place:
    """How far a process is. clock: the clock of a shard, or a worker's number of results.

    can_save: True if its present state belongs to this clock.
    """

    clock: int
    can_save: bool


def place_of(shard: Shard) -> Place:
    """Return how far a shard is."""
    return Place(shard.clock, shard.is_between_iterations)


class Cuts:
    """The request for the state of one process; a new request replaces it. Without any IO.

    Args:
        place: returns how far the process is.
        save: called with the number of the request when the state is to be taken.
        missed: called with the number of the request and the clock of the process, if the state at
            the requested clock cannot be taken any more.
        or_later: True: the state at a later clock is accepted, unless the process had passed the
            requested clock before the request came.
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
        # number of the request, and the clock to wait for
        self._asked: tuple[int, int] | None = None

    def ask(self, number: int, clock: int | None = None) -> None:
        """Save the process at this clock; None: at once.

        Call this between two messages of a shard, or between two steps of a worker. It may call
        `save` or `missed` at once.
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
        """Save the process if the requested moment has come.

        A shard calls this after each message, before its answers are sent.
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

    The state can be saved when the worker says so; without servers also at clock 0, before the
    worker's first iteration.
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
        """Note that the worker is at this clock; it continues after this call."""
        self._at = Place(clock, can_save=True)
        self.look()
        self.pass_over(clock)

    def pass_over(self, clock: int) -> None:
        """Note that the state of the worker could not be saved at this clock."""
        self._at = Place(clock, can_save=False)
        self.look()
