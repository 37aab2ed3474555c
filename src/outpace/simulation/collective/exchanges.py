"""Averages of two workers in virtual time. A worker takes part in one at a time.

Each is atomic: at the moment at which both have the other's parameters, both go on from the mean of
the parameters that they have then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from outpace.kernel import Future, Kernel
from outpace.simulation.collective.routes import Route
from outpace.support.units import Time


class SimulatedExchange:
    """An average that `worker` began. Implements `Exchange`. other None: no worker is left."""

    weight: ClassVar[int] = 1  # it belongs to one iteration

    __slots__ = ("_over", "began", "ended", "joined", "number", "other", "worker")

    def __init__(self, worker: int, other: int | None, now: Time, over: Future[None]) -> None:
        self.worker, self.other = worker, other
        self.joined: Time = now
        self.began: Time = now
        self.ended: Time
        self.number: int
        self._over = over

    @property
    def members(self) -> list[int]:
        assert self.other is not None
        return [self.worker, self.other]

    async def over(self) -> None:
        await self._over

    def end(self, now: Time) -> None:
        """End it: both have the mean, or no worker is left to average with."""
        self.ended = now
        self._over.set(None)


class SimulatedExchanges:
    """The averages of a run.

    Args:
        average: has two workers go on from their mean.
        ended: told of each average that is over.
    """

    def __init__(
        self,
        kernel: Kernel,
        route: Route,
        size_bytes: int,
        average: Callable[[int, int], None],
        ended: Callable[[SimulatedExchange], None],
    ) -> None:
        self._kernel, self._route, self._size_bytes = kernel, route, size_bytes
        self._average, self._ended = average, ended
        self._waiting: list[SimulatedExchange] = []  # first come, first served, if both are free
        self._busy: set[int] = set()
        self._count = 0

    def begin(self, worker: int, other: int | None) -> SimulatedExchange:
        """Begin an average of these two, which starts when both are free."""
        kernel = self._kernel
        pair = SimulatedExchange(
            worker, other, kernel.now, Future(kernel, f"the average with worker {other}")
        )
        if other is None:
            pair.end(kernel.now)
        else:
            self._waiting.append(pair)
            self._start()
        return pair

    def leave(self, worker: int, instead: Callable[[int], int | None]) -> None:
        """Have this worker take part in no average that has not started.

        Args:
            instead: returns another partner for a worker that waits for this one; None: no worker
                is left.
        """
        waiting, self._waiting = self._waiting, []
        for pair in waiting:
            if pair.other == worker:
                pair.other = instead(pair.worker)
            if pair.other is not None:
                self._waiting.append(pair)
                continue
            pair.began = self._kernel.now
            pair.end(self._kernel.now)
        self._start()

    def _start(self) -> None:
        """Start the averages whose workers are free."""
        waiting, self._waiting = self._waiting, []
        for pair in waiting:
            assert pair.other is not None
            both = {pair.worker, pair.other}
            if both & self._busy:
                self._waiting.append(pair)
                continue
            self._busy |= both
            pair.began, pair.number = self._kernel.now, self._count
            self._count += 1
            self._send(pair, both)

    def _send(self, pair: SimulatedExchange, missing: set[int]) -> None:
        members = pair.members

        def finished(worker: int) -> None:
            missing.discard(worker)
            if missing:
                return
            self._average(*members)
            self._busy.difference_update(members)
            pair.end(self._kernel.now)
            self._ended(pair)
            self._start()

        self._route.begin("exchange", members, self._size_bytes, finished)
