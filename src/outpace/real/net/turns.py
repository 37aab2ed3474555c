"""Bounds how many pushes and unanswered pulls of a worker a server holds.

The programs of workers keep to these bounds. A worker that does not is broken or hostile, and
must not fill the memory of a server.
"""

from __future__ import annotations

from collections import defaultdict

from outpace.sync.messages import Leave, Pull, Push
from outpace.sync.programs.partial_pull import Unanswered


class Turns:
    """The bounds of all workers at one server.

    most: unanswered pulls of a worker. pushes: pushes of a worker between two pulls.
    """

    def __init__(self, most: int, pushes: int = 1) -> None:
        self._most, self._pushes = most, pushes
        self.objection = (
            "it sent more requests without waiting for a reply than its program may "
            f"(limit {most} unanswered)"
        )
        self._pushed: defaultdict[int, int] = defaultdict(int)  # since the worker's last pull
        self._owed: defaultdict[int, Unanswered] = defaultdict(Unanswered)

    def take(self, message: Push | Pull | Leave) -> bool:
        """Count a message; False if it exceeds a bound."""
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
        """The worker's pulls up to this iteration are answered."""
        self._owed[worker].answered(iteration)
