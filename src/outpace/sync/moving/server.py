"""A server that takes part in new divisions of the parameters, without IO.

A server has a shard of the present division d, unless it joins. When it has heard of division
d + 1 (`Divided`), the messages of each worker belong to d until the worker's `GoOver`, and to
d + 1 after it. The connection of a worker delivers in order, so nothing else tells them apart.

When all workers have gone over or left, the shard has all pushes that belong to d, as the shards of
all other servers have. Its state is cut, and each piece goes to its new owner (`Moved`). What
belongs to d + 1 is kept until all pieces of the server's own part are there, and is then taken in
the order of arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from outpace.blocks.division import Division, shared, size_of
from outpace.errors import ProtocolError
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import (
    Divided,
    Done,
    GoOver,
    Leave,
    Message,
    Moved,
    Pause,
    Pull,
    Push,
    Rejoin,
    Resume,
    SetWorkers,
)
from outpace.sync.moving.states import Piece, joined, piece_of
from outpace.sync.shard import Shard

_OF_SHARD = Push | Pull  # most messages
_FROM_WORKERS = Push | Pull | Leave | Pause | Resume | Rejoin | Done


class Moves:
    """The part of one server in new divisions.

    Attributes:
        shard: of the present division; None while the server has not all pieces of its part.
        division: that the shard belongs to, or will.
        workers: the number that the run is to have; None: as many as at the start.

    Args:
        division: the present one; the server may have no part in it.
        begin: makes a shard of this division from its state, and of the number of workers that the
            run is to have; None: as many as the state has.
        hand: sends a piece to another server.
        begun: called with a division that this server has a shard of, or has left.
        layers: elements of each tensor of the model, if the optimizer is that of a script.
    """

    def __init__(
        self,
        server: int,
        division: Division,
        shard: Shard | None,
        begin: Callable[[Division, ShardState, int | None], Shard],
        hand: Callable[[int, Moved], None],
        begun: Callable[[Division], None],
        layers: Sequence[int] = (),
    ) -> None:
        self.server, self.division, self.shard = server, division, shard
        self._begin, self._hand, self._begun, self._layers = begin, hand, begun, layers
        self.workers: int | None = None
        self._next: Division | None = None  # while the shard is of the division before
        self._over: set[int] = set()  # workers that have gone over to the next division
        self._kept: deque[Message] = deque()  # that belong to a shard that has not begun
        self._pieces: list[Piece] = []
        # Of a division that this server has not heard of: when all workers have left, a server
        # hands its part over at once.
        self._early: list[Moved] = []
        # Nothing of the division is awaited.
        self._is_complete = shard is not None or server not in division.parts

    @property
    def is_moving(self) -> bool:
        """True from the announcement of a division until this server has its part."""
        return self._next is not None or not self._is_complete

    def next(self) -> Message | None:
        """Return the next message that was kept and belongs to the present shard."""
        if self.shard is None or self._next is not None or not self._kept:
            return None
        return self._kept.popleft()

    def take(self, message: Message) -> bool:
        """Handle a message if it is about moving, or belongs to a shard that has not begun.

        Returns False if the present shard is to take it. Raises ProtocolError, without any change.
        """
        has_present = self.shard is not None and self._next is None and self._is_complete
        if has_present and isinstance(message, _OF_SHARD):
            return False
        if isinstance(message, SetWorkers):
            self.workers = message.workers
            return self.shard is None  # else it knows by itself
        if isinstance(message, Divided):
            self._announce(message.division)
        elif isinstance(message, Moved):
            self._take_piece(message)
        elif isinstance(message, GoOver):
            self._go_over(message)
        elif not isinstance(message, _FROM_WORKERS) and self.shard is not None:
            return False  # of the coordinator
        elif has_present or (
            self._next is not None and getattr(message, "worker", -1) not in self._over
        ):
            return False
        else:
            self._kept.append(message)
        return True

    def look(self) -> None:
        """Hand the shard over if it has all pushes of its division; after each message."""
        after, shard = self._next, self.shard
        if after is None or shard is None:
            return
        if not shard.members <= self._over:
            return
        state, part = shard.state(), self.division.parts[self.server]
        self.shard, self.division, self._next = None, after, None
        self._is_complete = self.server not in after.parts
        for server, wanted in after.parts.items():
            ranges = tuple(shared(part, wanted))
            if not ranges:
                continue
            moved = Moved(after.number, ranges, piece_of(state, part, ranges, self._layers))
            if server == self.server:
                self._pieces.append((ranges, moved.state))
            else:
                self._hand(server, moved)
        self._begin_if_complete()
        if self._is_complete and self.shard is None:
            self._begun(after)

    def _announce(self, after: Division) -> None:
        if self.is_moving or after.number != self.division.number + 1:
            raise ProtocolError(
                f"server {self.server} is at division {self.division.number}, and cannot go on to "
                f"{after.number}"
            )
        if self.server not in self.division.parts:
            self.division, self._is_complete = after, False
        else:
            self._next, self._over = after, set()
        early, self._early = self._early, []
        for moved in early:
            self._take_piece(moved)

    def _go_over(self, message: GoOver) -> None:
        after, worker = self._next, message.worker
        if after is None or message.number != after.number or worker in self._over:
            raise ProtocolError(
                f"worker {worker} goes over to division {message.number}, which server "
                f"{self.server} does not expect"
            )
        assert self.shard is not None
        if worker not in self.shard.members:
            raise ProtocolError(f"worker {worker} goes over to another division after it had left")
        self.shard.abandon(worker)
        self._over.add(worker)

    def _take_piece(self, moved: Moved) -> None:
        if not self.is_moving and moved.number == self.division.number + 1:
            self._early.append(moved)
            return
        after = self._next or self.division
        part = after.parts.get(self.server, ())
        if moved.number != after.number or shared(part, moved.ranges) != list(moved.ranges):
            raise ProtocolError(
                f"server {self.server} received a piece of division {moved.number} that it does "
                "not expect"
            )
        self._pieces.append((moved.ranges, moved.state))
        self._begin_if_complete()

    def _begin_if_complete(self) -> None:
        """Begin with the shard of the new division if all of its pieces are there."""
        if self._next is not None or self.server not in self.division.parts:
            return
        if sum(size_of(tuple(ranges)) for ranges, _ in self._pieces) < self.division.size(
            self.server
        ):
            return
        is_scaled = self.workers is not None
        state = joined(self.server, self._pieces, is_scaled=is_scaled, layers=self._layers)
        self._pieces = []
        self.shard = self._begin(self.division, state, self.workers)
        self._is_complete = True
        self._begun(self.division)
