"""Whose turn it is: a worker pushes, pulls, and waits before it goes too far.

Programs keep to this by themselves. A worker that does not is broken or hostile; what it
can heap up at a server is bounded here, by so many gradients and pulls.
"""

from __future__ import annotations

from collections import defaultdict

from outpace.sync.messages import Leave, Pull, Push
from outpace.sync.programs.partial_pull import Unanswered


class Turns:
    """Those of all workers at one server.

    most: pulls of one worker that may be unanswered. pushes: how many may come in a row.
    """

    def __init__(self, most: int, pushes: int = 1) -> None:
        self._most, self._pushes = most, pushes
        self._pushed: defaultdict[int, int] = defaultdict(int)  # since the worker's last pull
        self._owed: defaultdict[int, Unanswered] = defaultdict(Unanswered)

    def take(self, message: Push | Pull | Leave) -> bool:
        """Note it, if it may come now."""
        worker = message.worker
        if isinstance(message, Leave):
            return True
        if len(self._owed[worker]) >= self._most:
            return False
        if isinstance(message, Push):
            self._pushed[worker] += 1
            return self._pushed[worker] <= self._pushes
        self._pushed[worker] = 0
        self._owed[worker].asked(message.iteration)
        return True

    def answered(self, worker: int, iteration: int) -> None:
        """The worker's pulls up to this iteration are."""
        self._owed[worker].answered(iteration)
