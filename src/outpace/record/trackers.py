"""Experiment trackers: their interface, and what feeds them with the rows of metrics.parquet.

Workers are at different iterations, so their points arrive out of order, and some trackers drop
points whose step does not increase. So the step of a point is the worker's iteration (of a task:
the number of updates), but at least one more than the last step; and `iteration` is among the
values. Names of other workers than worker 0 begin with `worker-N/`, so that each has its own curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import Full, Queue
from threading import Thread
from typing import Any, Final, Protocol, runtime_checkable

from outpace.errors import RunError
from outpace.support.user_code import brief

_LONGEST: Final = 500  # characters of an error
_MOST_WAITING: Final = 100_000  # points
_END_S: Final = 60.0  # for the tracker to take what waits, and to finish


@runtime_checkable
class Tracker(Protocol):
    """Keeps the configuration and the curves of one run."""

    def config(self, values: dict[str, Any], /) -> None:
        """Take the configuration of the run: nested plain data. Called once, at the start."""

    def log(self, values: dict[str, float], step: int, /) -> None:
        """Take a point of the run.

        Args:
            values: by name. `time_s` is the time of the run.
            step: greater than that of the point before.
        """

    def finish(self, status: str, /) -> None:
        """The run has ended. status: `complete`, `partial` or `failed`, as in summary.json."""


class Trackers:
    """The trackers of one run. A tracker that fails is left out from then on, with one warning.

    Args:
        trackers: each with the name that warnings use.
        warn: called with the warnings.
    """

    def __init__(
        self, trackers: Sequence[tuple[str, Tracker]] = (), warn: Callable[[str], None] = print
    ) -> None:
        self._trackers, self._warn = list(trackers), warn
        self._last = -1  # step

    def config(self, values: Mapping[str, Any]) -> None:
        self._each(lambda tracker: tracker.config(dict(values)))

    def point(self, row: Mapping[str, Any]) -> None:
        """Log a row of metrics.parquet; None: the row has no such value."""
        iteration = row.get("iteration")
        step = row.get("updates") if iteration is None else iteration
        self._last = max(self._last + 1, step or 0)
        before = f"worker-{row['worker']}/" if row.get("worker") else ""
        values = {
            before + name: value
            for name, value in row.items()
            if value is not None and name != "worker"
        }
        self._each(lambda tracker: tracker.log(dict(values), self._last))

    def finish(self, status: str) -> None:
        self._each(lambda tracker: tracker.finish(status))
        self._trackers.clear()

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers):
            try:
                call(tracker)
            except Exception as error:
                self._trackers.remove((name, tracker))
                why = " ".join(brief(error).split())
                self._warn(
                    f"the tracker {name} failed and gets no more values of this run; all of them "
                    f"are in its metrics: {why[:_LONGEST]}"
                )


class ThreadedTracker:
    """Passes calls on to the tracker that `make` returns in a thread of its own.

    So a slow server of the tracker delays nothing. An error of the tracker is raised by the next
    call. Nothing is called after it.
    """

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self._calls: Queue[Callable[[Tracker], None] | None] = Queue(_MOST_WAITING)
        self._error: Exception | None = None
        self._make = make
        self._thread = Thread(target=self._work, name=f"tracker {name}", daemon=True)

    def config(self, values: dict[str, Any]) -> None:
        self._thread.start()
        self._put(lambda tracker: tracker.config(values))

    def log(self, values: dict[str, float], step: int) -> None:
        self._put(lambda tracker: tracker.log(values, step))

    def finish(self, status: str) -> None:
        self._put(lambda tracker: tracker.finish(status))
        self._put(None)
        self._thread.join(_END_S)
        if self._thread.is_alive():
            raise RunError(f"it did not end within {_END_S:.0f} s")
        self._raise()

    def _put(self, call: Callable[[Tracker], None] | None) -> None:
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
            while self._error is None and (call := self._calls.get()) is not None:
                call(tracker)
        except Exception as error:
            self._error = error
