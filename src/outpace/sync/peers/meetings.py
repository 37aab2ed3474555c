"""Records which workers have entered which meeting, in virtual time and for real.

At a meeting each worker waits until all workers that are still in the run have entered it. A worker
enters the next meeting only when the previous one is over, so it is at most one meeting ahead of
the others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Worker = TypeVar("Worker", bound=Hashable)


class Meetings(Generic[Worker]):
    """Counts the meetings that workers have entered."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        # number of meetings entered, by worker
        self._come: dict[Worker, float] = dict.fromkeys(workers, 0)
        self._over = 0

    def come(self, worker: Worker, *, last: bool) -> list[Worker]:
        """Note that a worker enters a meeting; see `PeerContext.meet`.

        Returns:
            The workers whose meeting is over now.
        """
        if worker in self._come:
            self._come[worker] = math.inf if last else self._come[worker] + 1
        return self._end()

    def leave(self, worker: Worker) -> list[Worker]:
        """Stop waiting for this worker; returns the same as `come`."""
        self._come.pop(worker, None)
        return self._end()

    @property
    def absent(self) -> list[Worker]:
        """The workers that others wait for; none if no worker waits."""
        late = [worker for worker, come in self._come.items() if come <= self._over]
        return late if self._waiting else []

    @property
    def _waiting(self) -> list[Worker]:
        """The workers that have entered a meeting that is not over."""
        return [worker for worker, come in self._come.items() if self._over < come < math.inf]

    def _end(self) -> list[Worker]:
        waiting = self._waiting
        if not waiting or self.absent:
            return []
        self._over += 1
        return waiting
