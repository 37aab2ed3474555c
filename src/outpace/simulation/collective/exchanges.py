"""Averages of two workers in virtual time. A worker takes part in one at a time.

Each is atomic: at the moment at which both have the other's parameters, both go on from the mean of
the parameters that they have then.

Workers that take a step at the same instant take it before an average of that instant starts. So
workers in lockstep average parameters of the same iteration, also where messages take no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from outpace.kernel import Future, Kernel
from outpace.simulation.collective.routes import Route
from outpace.support.units import Time


@dataclass(slots=True, eq=False)
class SimulatedExchange:
    """An average that `worker` began. Implements `Exchange`."""

    weight: ClassVar[int] = 1  # it belongs to one iteration

    worker: int
    other: int | None  # None: no worker is left
    joined: Time
    _over: Future[None]
    began: Time = field(init=False)
    ended: Time = field(init=False)
    number: int = field(init=False)

    @property
    def members(self) -> list[int]:
        assert self.other is not None
        return [self.worker, self.other]

    async def over(self) -> None:
        await self._over

    def end(self, now: Time) -> None:
        """Note that it is over: both have the mean, or no worker is left to average with."""
        self.ended = now
        self._over.set(None)


class SimulatedExchanges:
    """The averages of a run.

    `average` gives two workers their mean; `ended` is called with each average that is over.
    `first` is the number of the first one.
    """

    def __init__(
        self,
        kernel: Kernel,
        route: Route,
        size_bytes: int,
        average: Callable[[int, int], None],
        ended: Callable[[SimulatedExchange], None],
        first: int = 0,
    ) -> None:
        self._kernel, self._route, self._size_bytes = kernel, route, size_bytes
        self._average, self._ended = average, ended
        self._waiting: list[SimulatedExchange] = []  # first come, first served, if both are free
        self._busy: set[int] = set()
        self._is_to_start = False  # at the end of this instant
        self.count = first  # that have started

    def begin(self, worker: int, other: int | None) -> SimulatedExchange:
        """Begin an average of these two, which starts when both are free.

        Steps of this instant come first.
        """
        kernel = self._kernel
        over: Future[None] = Future(kernel, f"the average with worker {other}")
        pair = SimulatedExchange(worker, other, kernel.now, over)
        self._waiting.append(pair)
        if not self._is_to_start:
            self._is_to_start = True
            kernel.call_at(kernel.now, self._start, late=True)
        return pair

    def leave(self, worker: int, instead: Callable[[int], int | None]) -> None:
        """Take this worker out of the averages that have not started.

        `instead` returns another partner for a worker that waits for this one; None: none is left.
        """
        for pair in self._waiting:
            if pair.other == worker:
                pair.other = instead(pair.worker)
        self._start()

    def abandon(self) -> None:
        """Start no more averages: all workers begin again."""
        self._waiting.clear()

    def _start(self, _: object = None) -> None:
        """Start the averages whose workers are free; end those without another worker."""
        self._is_to_start = False
        waiting, self._waiting = self._waiting, []
        for pair in waiting:
            pair.began = self._kernel.now
            if pair.other is None:
                pair.end(self._kernel.now)
            elif self._busy.isdisjoint(pair.members):
                self._busy.update(pair.members)
                pair.number = self.count
                self.count += 1
                self._send(pair)
            else:
                self._waiting.append(pair)

    def _send(self, pair: SimulatedExchange) -> None:
        members, missing = pair.members, set(pair.members)

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
