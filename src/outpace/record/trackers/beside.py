"""A tracker in a thread of its own, so that a slow server of the tracker delays nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Full, Queue
from threading import Thread
from typing import Any, Final

from outpace.errors import RunError
from outpace.record.trackers.tracker import Tracker

_MOST_WAITING: Final = 100_000  # points
_END_S: Final = 60.0  # for the tracker to take what waits, and to finish


class Beside:
    """Passes calls on to the tracker that `make` returns in the thread.

    An error of the tracker is raised by the next call. Nothing is called after it.
    """

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self._calls: Queue[Callable[[Tracker], None]] = Queue(_MOST_WAITING)
        self._error: Exception | None = None
        self._make, self._is_over = make, False
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)

    def config(self, values: dict[str, Any]) -> None:
        self._thread.start()
        self._put(lambda tracker: tracker.config(values))

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._put(lambda tracker: tracker.log(dict(values), step))

    def finish(self, status: str) -> None:
        def end(tracker: Tracker) -> None:
            self._is_over = True
            tracker.finish(status)

        self._put(end)
        self._thread.join(_END_S)
        if self._thread.is_alive():
            raise RunError(f"it did not end within {_END_S:.0f} s")
        self._raise()

    def _put(self, call: Callable[[Tracker], None]) -> None:
        self._raise()
        try:
            self._calls.put_nowait(call)
        except Full:
            self._error = RunError(f"it is too slow: {_MOST_WAITING:,} points wait for it")
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            tracker = self._make()
            while not self._is_over and self._error is None:
                self._calls.get()(tracker)
        except Exception as error:
            self._error = error
