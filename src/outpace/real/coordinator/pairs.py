"""Draws the two workers that average next in a run of gossip.

A worker that asks is given a partner, drawn as in virtual time from the workers that are still in
the run. Both are told to start once both are free, in the order of requests. Each worker reports
when it has ended its part, and is then free. So an average waits only for its two workers.

If one of the two leaves in between, the other is told to give up the average, unless it has ended;
if the other had asked for it, it asks again. If no worker is lost, an average takes place on both
sides or on neither (see `exchanges`). If a worker is lost in the middle of an average, only one
side may have added its half of the difference, but never twice: so at most half of one difference
is lost, besides the lost worker's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outpace.kernel import Kernel
from outpace.real.coordinator.membership import Tell, end_if_still
from outpace.real.net.peer_messages import (
    CancelAverage,
    GroupBroken,
    StartAverage,
    TakePart,
)
from outpace.sync.messages import Leave, WireMessage
from outpace.sync.peers.gossip import Pairing


class Pairs:
    """The averages of two workers.

    tell: sends a message to a worker. first: number of the first average.
    """

    def __init__(
        self, kernel: Kernel, workers: Iterable[str], seed: int, tell: Tell, first: int = 0
    ) -> None:
        self._kernel, self._tell = kernel, tell
        self._names = list(workers)
        self._pairing = Pairing(len(self._names), seed, first)
        self._when_idle: list[Callable[[], None]] = []

    @property
    def averages(self) -> int:
        """Number of averages that have begun since the run began."""
        return self._pairing.count

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call this as soon as no average is running; until then none begins.

        Messages that `action` sends to workers arrive after an average that has changed both
        models, and before the next one.
        """
        self._when_idle.append(action)
        self._begin()

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a worker; False if it is not about averages."""
        pairing, worker = self._pairing, self._names.index(name)
        if isinstance(message, TakePart) and message.what == "pair":
            if worker in pairing.here:
                if not pairing.ask(worker, message.number):
                    self._tell(name, CancelAverage(None))
                self._begin()
        elif isinstance(message, TakePart) and message.what == "averaged":
            if pairing.busy.get(worker) == message.number:
                del pairing.busy[worker]
                self._begin()
        elif isinstance(message, GroupBroken):
            left, why = len(pairing.here), f"{name} cannot reach {message.reason}"
            if message.average is not None:
                end_if_still(self._kernel, lambda: pairing.busy.get(worker) == message.average, why)
            else:  # while the worker connects to the others
                end_if_still(self._kernel, lambda: len(pairing.here) == left, why)
        elif isinstance(message, Leave):
            self.lose(name)
        else:
            return False
        return True

    def lose(self, name: str) -> None:
        """Note that a worker has left or is lost, and joins no further average."""
        worker, busy = self._names.index(name), self._pairing.busy
        self._pairing.waiting.pop(worker, None)
        number = busy.pop(worker, None)
        for other, busy_with in busy.items():
            if busy_with == number:
                self._tell(self._names[other], CancelAverage(busy_with))
        for seeker in self._pairing.leave(worker):
            self._tell(self._names[seeker], CancelAverage(None))
        self._begin()

    def _begin(self) -> None:
        """Begin the averages whose two workers are free."""
        if self._when_idle:
            if self._pairing.busy:
                return
            actions, self._when_idle = self._when_idle, []
            for action in actions:
                action()
        for number, seeker, partner in self._pairing.begin():
            for worker in (seeker, partner):
                start = StartAverage(number, seeker, partner, self._kernel.now)
                self._tell(self._names[worker], start)
