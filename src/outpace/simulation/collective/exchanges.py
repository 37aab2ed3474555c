"""Averages of two workers in virtual time. A worker is in at most one average at a time.

Each average is atomic: when both workers have the other's parameters, both continue from the mean
of the parameters that they have at that time.

A step comes before an average that starts at the same time. So workers in lockstep average
parameters of the same iteration, even if messages take no time.
"""

from __future__ import annotations

from collections.abc import Callable

from outpace.engine.peers import PendingExchange
from outpace.kernel import Future, Kernel
from outpace.simulation.collective.routes import Route
from outpace.sync.peers.gossip import Pairing


class SimulatedExchanges:
    """The averages of a run.

    `average` gives two workers their mean; `ended` is called with each average that is over.
    """

    def __init__(
        self,
        kernel: Kernel,
        route: Route,
        size_bytes: int,
        pairing: Pairing,
        average: Callable[[int, int], None],
        ended: Callable[[PendingExchange], None],
    ) -> None:
        self._kernel, self._route, self._size_bytes = kernel, route, size_bytes
        self._pairing, self._average, self._ended = pairing, average, ended
        self._sought: dict[int, PendingExchange] = {}  # averages, by the worker that waits for it
        self._is_to_start = False  # after all other events of the present time

    @property
    def count(self) -> int:
        """Number of averages that have started since the run began."""
        return self._pairing.count

    def begin(self, worker: int, iteration: int) -> PendingExchange:
        """Let a worker ask for an average, which starts when both are free.

        Steps at the present time come first.
        """
        kernel = self._kernel
        arrived = Future[None](kernel, f"the average during iteration {iteration}")
        pair = self._sought[worker] = PendingExchange(kernel.now, arrived, iteration)
        if not self._pairing.ask(worker, iteration):
            self._end_alone(worker)
        elif not self._is_to_start:
            self._is_to_start = True
            kernel.call_at(kernel.now, self._start, late=True)
        return pair

    def leave(self, worker: int) -> None:
        """Start no new average with this worker, except one that it has asked for."""
        for seeker in self._pairing.leave(worker):
            self._end_alone(seeker)
        self._start()

    def abandon(self) -> None:
        """Do not start any more averages, because all workers begin again."""
        self._pairing.waiting.clear()

    def _end_alone(self, seeker: int) -> None:
        """End the wait of a worker because no other is left."""
        pair = self._sought.pop(seeker)
        pair.began = self._kernel.now
        pair.end(pair.began)

    def _start(self, _: object = None) -> None:
        """Start the averages whose workers are free."""
        self._is_to_start = False
        for number, *members in self._pairing.begin():
            pair = self._sought.pop(members[0])
            pair.number, pair.members, pair.began = number, members, self._kernel.now
            self._send(pair)

    def _send(self, pair: PendingExchange) -> None:
        members, missing = pair.members, set(pair.members)

        def finished(worker: int) -> None:
            missing.discard(worker)
            if missing:
                return
            self._average(*members)
            for member in members:
                del self._pairing.busy[member]
            pair.end(self._kernel.now)
            self._ended(pair)
            self._start()

        self._route.begin("exchange", members, self._size_bytes, finished)
