"""Feeds the trackers of a run with the rows of metrics.parquet.

Workers are at different iterations, so their points arrive out of order, and some trackers drop
points whose step does not increase. So the step of a point is the worker's iteration (of a task:
the number of updates), but at least one more than the last step; and `iteration` is among the
values. Names of other workers than worker 0 begin with `worker-N/`, so that each has its own curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from outpace.record.trackers.tracker import Tracker
from outpace.support.user_code import brief

_LONGEST: Final = 500  # characters of an error


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
        if not self._trackers:
            return
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
