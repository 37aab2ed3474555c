"""Draws the two workers that average next in a run of gossip.

A worker that asks is given a partner, drawn as in virtual time from the workers that are still
there. Both are told to start once both are free, first come, first served. Each says when it has
ended its part, which frees it, so an average waits for its two workers only.

If one of the two goes in between, the other is told to give the average up, unless it has ended;
if the other had asked for it, it asks again. Between workers that stay, or leave in order, an
average comes about on both sides or on neither (see `exchanges`). If a worker is lost in the
middle of one, only one side may have its half of it, never twice: at most half of one difference
is lost, besides what the lost worker had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outpace.kernel import Kernel
from outpace.real.coordinator.averaging.membership import Roster, Tell, end_if_still
from outpace.real.net.peer_messages import (
    AverageEnded,
    CancelAverage,
    GroupBroken,
    StartAverage,
    TakePart,
)
from outpace.sync.messages import Leave, WireMessage
from outpace.sync.peers.gossip import partner_of


class Pairs:
    """The averages of two.

    tell: sends a message to a worker. first: number of the first average.
    """

    def __init__(
        self, kernel: Kernel, workers: Iterable[str], seed: int, tell: Tell, first: int = 0
    ) -> None:
        self._kernel, self._seed, self._tell = kernel, seed, tell
        self._roster = Roster(workers)
        self._names = list(self._roster.numbers)
        self._waiting: dict[str, tuple[int, str]] = {}  # seeker: its iteration, its partner
        self._busy: dict[str, int] = {}  # worker: its average
        self._count = first
        self._when_idle: list[Callable[[], None]] = []

    @property
    def averages(self) -> int:
        """Averages that have begun since the run began."""
        return self._count

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call this as soon as no average is under way; until then none begins.

        What is sent to workers in `action` reaches them after an average that has changed both
        models, and before the next one.
        """
        self._when_idle.append(action)
        self._start()

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a worker; False if it is not about averages."""
        if isinstance(message, TakePart) and message.what == "pair":
            if name in self._roster.here:
                self._draw(name, message.number)
                self._start()
        elif isinstance(message, AverageEnded):
            if self._busy.get(name) == message.number:
                del self._busy[name]
                self._start()
        elif isinstance(message, GroupBroken):
            changes, why = self._roster.changes, f"{name} cannot reach {message.reason}"
            if message.average is not None:
                end_if_still(self._kernel, lambda: self._busy.get(name) == message.average, why)
            else:  # while it connects to the others
                end_if_still(self._kernel, lambda: self._roster.changes == changes, why)
        elif isinstance(message, Leave):
            self.lose(name)
        else:
            return False
        return True

    def lose(self, name: str) -> None:
        """This worker has left or is gone: it takes part in no further average."""
        self._roster.remove(name)
        number = self._busy.pop(name, None)
        self._waiting.pop(name, None)
        for other, busy_with in self._busy.items():
            if busy_with == number:
                self._tell(other, CancelAverage(busy_with))
        for seeker, (iteration, partner) in list(self._waiting.items()):
            if partner == name:
                self._draw(seeker, iteration)
        self._start()

    def _draw(self, seeker: str, iteration: int) -> None:
        """Draw a partner for it; a seeker that waits already keeps its place."""
        numbers = self._roster.numbers
        others = [numbers[name] for name in self._roster.here if name != seeker]
        partner = partner_of(numbers[seeker], iteration, others, self._seed)
        if partner is not None:
            self._waiting[seeker] = iteration, self._names[partner]
        else:
            self._waiting.pop(seeker, None)
            self._tell(seeker, CancelAverage(None))

    def _start(self) -> None:
        """Start the averages whose two workers are free."""
        if self._when_idle:
            if self._busy:
                return
            actions, self._when_idle = self._when_idle, []
            for action in actions:
                action()
        for seeker, (_, partner) in list(self._waiting.items()):
            if not self._busy.keys().isdisjoint((seeker, partner)):
                continue
            del self._waiting[seeker]
            self._begin(seeker, partner)

    def _begin(self, seeker: str, partner: str) -> None:
        number, numbers = self._count, self._roster.numbers
        start = StartAverage(number, numbers[seeker], numbers[partner], self._kernel.now)
        for name in (seeker, partner):
            self._busy[name] = number
            self._tell(name, start)
        self._count += 1
