"""Names slow workers while a real run is running, for the picture.

The last iterations are compared as `outpace.report.explaining` compares those of a whole run. It
costs some 100 microseconds per iteration of all workers, in the coordinator's process.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.config.experiment import Experiment
from outpace.engine.servers import is_exact
from outpace.predict.slow import slow_units
from outpace.record import tables, trace
from outpace.report.explaining.charging import shared

_WINDOW: Final = 128  # iterations that are compared
_SELDOM: Final = 40  # most iterations between two comparisons
_WAITING: Final = 64  # iterations that wait for their last times
_MOST: Final = 3  # workers that are named
_EVENT, _WORKER, _ITERATION, _STARTED, _COMPUTED, _WOULD_END = (
    trace.SCHEMA.names.index(name)
    for name in ("event", "worker", "iteration", "start_ns", "computed_ns", "bound")
)


class SlowWorkers:
    """Takes the rows of the trace as they come, and says which workers are slow.

    Compares iterations whose times of all workers are known. With more than _WAITING iterations
    that wait for times, the oldest is compared without them.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._workers, self._is_lockstep = experiment.workers, is_exact(experiment)
        self._waiting: dict[int, NDArray[np.float64]] = {}  # seconds by worker, by iteration
        self._seconds: deque[NDArray[np.float64]] = deque(maxlen=_WINDOW)
        self._seen, self._next = 0, 1  # iterations so far, and at the next comparison
        self._line = ""

    def take(self, name: str, table: tables.Table) -> None:
        """Take rows of the table of this name, if it is the trace."""
        if name != "trace":
            return
        # A worker may have written anything into its rows.
        fits = (table[:, _WORKER] < self._workers) & (table[:, _ITERATION] >= 0)
        mine = table[(table[:, _EVENT] == trace.ITERATION) & (table[:, _WORKER] >= 0) & fits]
        is_known = mine[:, _WOULD_END] != tables.NONE
        ends = np.where(is_known, mine[:, _WOULD_END], mine[:, _COMPUTED])
        seconds = (ends - mine[:, _STARTED]) * 1e-9
        for worker, iteration, time_s in zip(
            mine[:, _WORKER].tolist(), mine[:, _ITERATION].tolist(), seconds, strict=True
        ):
            row = self._waiting.setdefault(iteration, np.full(self._workers, np.nan))
            row[worker] = time_s

    def line(self) -> str:
        """Return the words about the workers that are slow now; empty if none is."""
        if self._is_due():
            seconds = np.array(self._seconds)
            slow = slow_units(seconds)
            lost = shared(seconds, slow.excess) if self._is_lockstep else None
            parts = []
            for period in [each for each in slow.periods if each.last is None][:_MOST]:
                text = f"worker {period.unit}: {period.factor:.3g} times as slow as the others"
                if lost is not None:
                    cost_s = float(lost[period.rows, period.unit].mean())
                    text += f", costs about {cost_s:.2g} s in each iteration"
                parts.append(text)
            self._line = "  ·  ".join(parts)
        return self._line

    def _is_due(self) -> bool:
        """Take the complete iterations, and return whether they should be compared again."""
        for iteration in sorted(self._waiting):
            if len(self._waiting) > _WAITING or not np.isnan(self._waiting[iteration]).any():
                self._seconds.append(self._waiting.pop(iteration))
                self._seen += 1
        if self._seen < self._next:
            return False
        self._next = self._seen + max(1, min(self._seen // 8, _SELDOM))
        return True
