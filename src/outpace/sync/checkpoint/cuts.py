"""Takes the state of one shard for a checkpoint, when it is asked for.

With strategies in which all workers wait for each iteration, a checkpoint is exact: every shard is
saved when its clock becomes c, before any answer with that clock is sent. No worker can have
pushed iteration c then, so all shards have the same gradients, and the run goes on from there as
if it had not been interrupted. With other strategies each shard is saved at once.
"""

from __future__ import annotations

from collections.abc import Callable

from outpace.sync.checkpoint.state import ShardState
from outpace.sync.shard import Shard


class Cuts:
    """The requests for the state of one shard.

    Args:
        shard: returns the shard.
        saved: called with the number of the request and the state.
        missed: called with the number of the request and the clock of the shard, if the shard is
            past the clock that was asked for.
    """

    def __init__(
        self,
        shard: Callable[[], Shard],
        saved: Callable[[int, ShardState], None],
        missed: Callable[[int, int], None],
    ) -> None:
        self._shard, self._saved, self._missed = shard, saved, missed
        self._clocks: dict[int, int] = {}  # number of a request -> the clock to wait for

    def ask(self, number: int, clock: int | None = None) -> None:
        """Save the shard when it begins the iteration `clock`; None: at once.

        To be called between two messages of the shard. May call `saved` or `missed` at once.
        """
        if clock is None:
            self._saved(number, self._shard().state())
        else:
            self._clocks[number] = clock
            self.look()

    def give_up(self, number: int) -> None:
        """Forget a request."""
        self._clocks.pop(number, None)

    def look(self) -> None:
        """Save the shard if it is time to; after each message, before its answers are sent."""
        if not self._clocks:
            return
        shard = self._shard()
        for number, clock in list(self._clocks.items()):
            if shard.clock < clock:
                continue
            del self._clocks[number]
            if shard.clock == clock and shard.is_between_iterations:
                self._saved(number, shard.state())
            else:
                self._missed(number, shard.clock)
