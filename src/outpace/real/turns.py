"""Whose turn it is: a worker pushes, pulls, and waits before it goes too far.

Programs keep to this by themselves. A worker that does not is broken or hostile; what it
can heap up at a server is bounded here, by so many gradients and pulls.
"""

from __future__ import annotations

from collections import defaultdict

from outpace.messages import Leave, Pull, Push
from outpace.programs.partial_pull import Unanswered


class Turns:
    """Those of all workers at one server. `most`: pulls of one that may be unanswered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pushed: set[int] = set()  # those whose next message is a pull
        self._owed: defaultdict[int, Unanswered] = defaultdict(Unanswered)

    def take(self, message: Push | Pull | Leave) -> bool:
        """Note it, if it may come now."""
        worker = message.worker
        if isinstance(message, Leave):
            return True
        if len(self._owed[worker]) >= self._most:
            return False
        if isinstance(message, Push):
            fits = worker not in self._pushed
            self._pushed.add(worker)
            return fits
        self._pushed.discard(worker)
        self._owed[worker].asked(message.iteration)
        return True

    def answered(self, worker: int, iteration: int) -> None:
        """The worker's pulls up to this iteration are."""
        self._owed[worker].answered(iteration)
