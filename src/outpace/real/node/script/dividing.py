"""Among how many workers the script of a worker divides its data, iteration by iteration."""

from __future__ import annotations

from collections import deque

from outpace.support.place import HERE


class DividedData:
    """Has the place of this process (`HERE`) say by how many workers the data are divided.

    Args:
        worker: number of this worker.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker
        # The changes that are still to come. (9, 3): epochs that begin at iteration 9 or later are
        # divided among 3 workers.
        self._changes: deque[tuple[int, int]] = deque()
        self._known = HERE.workers  # after the last change
        self._takes_part = True  # after the last change
        self._joins_at = 0  # iteration at which this worker has joined

    def divide(self, first: int, workers: int) -> None:
        """From iteration `first` on there are so many workers. Call in the order of iterations.

        An epoch that begins later is divided among them. An epoch that begins right there is
        divided as before if workers join: this worker may have begun it already.
        """
        took_part, self._takes_part = self._takes_part, self._worker < workers
        if not self._takes_part:  # it has not joined yet, or leaves
            return
        if not took_part:
            self._joins_at = first
        self._changes.append((first + (workers > self._known), workers))
        self._known = workers

    def begins(self, iteration: int) -> None:
        """The script begins an iteration, for the first time or again."""
        if iteration > self._joins_at:
            HERE.data.is_joining = False
        while self._changes and iteration >= self._changes[0][0]:
            _, HERE.workers = self._changes.popleft()
