"""Names slow workers of a real run while it is running, for the picture in the terminal."""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.config.experiment import Experiment
from outpace.engine.servers import is_exact
from outpace.predict.slow import Detector, Rows, SlowPeriod
from outpace.record.trace import ITERATION, NONE, SCHEMA, Table
from outpace.report.explaining.charging import shared

_EVENT, _WORKER, _ITERATION, _STARTED, _COMPUTED, _WOULD_END = (
    SCHEMA.names.index(name)
    for name in ("event", "worker", "iteration", "start_ns", "computed_ns", "bound")
)
_MOST: Final = 3  # workers that are named


class SlowWorkers:
    """Takes the rows of the trace as they come, and says which workers are slow.

    It costs some 100 microseconds per iteration of all workers, in the coordinator's process.
    """

    def __init__(self, experiment: Experiment) -> None:
        workers = experiment.workers
        self._rows, self._detector = Rows(workers), Detector(workers)
        self._is_lockstep = is_exact(experiment)
        self._seen = 0  # complete iterations
        self._lost_s = np.zeros(workers)
        self._slow = np.zeros(workers, np.int64)  # iterations that `_lost_s` is about

    def take(self, name: str, table: Table) -> None:
        """Take rows of the table of this name, if it is the trace."""
        if name != "trace":
            return
        # A worker may have written anything into its rows.
        fits = (table[:, _WORKER] < len(self._lost_s)) & (table[:, _ITERATION] >= 0)
        mine = table[(table[:, _EVENT] == ITERATION) & (table[:, _WORKER] >= 0) & fits]
        if not len(mine):
            return
        ends = np.where(mine[:, _WOULD_END] == NONE, mine[:, _COMPUTED], mine[:, _WOULD_END])
        seconds = (ends - mine[:, _STARTED]) * 1e-9
        for iteration, row in self._rows.add(mine[:, _WORKER], mine[:, _ITERATION], seconds):
            self._seen += 1
            self._detector.step(iteration, row)
            self._charge(row)

    def line(self) -> str:
        """Return such as `worker 3: 1.31 times as slow, cost 2.1 s`; empty if none is slow."""
        before = [each for each in self._detector.periods[-_MOST:] if each.last is not None]
        shown = (self._detector.slow_now + before[::-1])[:_MOST]
        return "  ·  ".join(self._words(period) for period in shown)

    def _words(self, period: SlowPeriod) -> str:
        text = f"worker {period.unit}: {period.factor:.3g} times as slow as the others"
        if period.last == period.first:
            return f"{text} in iteration {period.first}"
        if period.last is not None:
            return f"{text} in iterations {period.first} to {period.last}"
        since = f" since iteration {period.first}" if period.first else ""
        if not self._is_lockstep:
            return f"{text}{since}"
        count = max(int(self._slow[period.unit]), 1)
        lost_s = self._lost_s[period.unit] / count * (self._seen - period.first)
        return f"{text}{since}, costs about {lost_s:.2g} s"

    def _charge(self, row: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Add what workers that are slow at present have cost in an iteration."""
        now = self._detector.slow_now
        if not now or not self._is_lockstep:
            return
        excess = np.zeros(len(row))
        for period in now:
            excess[period.unit] = row[period.unit] * (1 - 1 / period.factor)
            self._slow[period.unit] += 1
        self._lost_s += shared(row[None], np.nan_to_num(excess)[None])[0]
