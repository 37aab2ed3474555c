"""Listens to a run: writes the trace and keeps the running sums of the summary.

Memory does not grow with the run: sums, a histogram of staleness, one row per
evaluation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from outpace.shard import NOBODY, Outcome
from outpace.sync.decision import Decision
from outpace.tasks import Evaluation
from outpace.trace import NONE, Trace
from outpace.units import Time, seconds

METRICS: Final = pa.schema(
    [
        ("time_s", pa.float64()),
        ("updates", pa.int64()),
        ("gradients", pa.int64()),
        ("train_loss", pa.float64()),
        ("test_loss", pa.float64()),
        ("accuracy", pa.float64()),
        ("batch_loss", pa.float64()),
    ]
)


class Recorder:
    """One run's listener. Implements `ShardObserver`.

    `on_update` is called with every new version of shard 0.
    """

    def __init__(self, trace: Trace, workers: int, on_update: Callable[[int], None]) -> None:
        self.iterations = [0] * workers
        self._trace, self._on_update = trace, on_update
        self._applied = self._dropped = self._delayed = 0
        self._staleness: Counter[int] = Counter()
        self._compute = self._communicate = self._wait = 0  # ns, over all workers
        self._loss_sum, self._losses = 0.0, 0  # mini-batches since the last evaluation
        self._metrics: list[dict[str, Any]] = []

    # -- workers ---------------------------------------------------------------

    def gradient_computed(self, worker: int, loss: float | None) -> None:
        self.iterations[worker] += 1
        if loss is not None:
            self._loss_sum += loss
            self._losses += 1

    def iteration_finished(
        self, worker: int, iteration: int, started: Time, computed: Time, finished: Time,
        held: Time, last_shard: int,
    ) -> None:  # fmt: skip
        self._compute += computed - started
        self._wait += held
        self._communicate += finished - computed - held
        self._trace.iteration(worker, iteration, started, computed, finished, held, last_shard)

    # -- shards ----------------------------------------------------------------

    def push_settled(
        self, shard: int, worker: int, iteration: int, arrived: Time, settled: Time,
        version: int, outcome: Outcome, staleness: int,
    ) -> None:  # fmt: skip
        if outcome is Outcome.APPLIED:
            self._staleness[staleness] += 1
            self._applied += shard == 0
        elif outcome is Outcome.DROPPED:
            self._dropped += shard == 0
        self._trace.push(shard, worker, iteration, arrived, settled, version, outcome, staleness)

    def pull_answered(
        self, shard: int, worker: int, iteration: int, arrived: Time, answered: Time,
        version: int, clock: int, decision: Decision, released_by: int,
    ) -> None:  # fmt: skip
        self._delayed += released_by != NOBODY
        self._trace.pull(
            shard, worker, iteration, arrived, answered, version, clock, decision, released_by
        )

    def pull_abandoned(
        self, shard: int, worker: int, iteration: int, arrived: Time, decision: Decision
    ) -> None:
        self._delayed += 1
        self._trace.pull(shard, worker, iteration, arrived, NONE, NONE, NONE, decision, NOBODY)

    def updated(self, shard: int, version: int) -> None:
        if shard == 0:
            self._on_update(version)

    # -- evaluation ------------------------------------------------------------

    def evaluated(self, now: Time, updates: int, evaluation: Evaluation) -> None:
        """Add a row to the metrics; `batch_loss` is the mean since the last one."""
        batch_loss = self._loss_sum / self._losses if self._losses else None
        self._loss_sum, self._losses = 0.0, 0
        self._metrics.append(
            {
                "time_s": seconds(now),
                "updates": updates,
                "gradients": self._applied,
                "train_loss": evaluation.train_loss,
                "test_loss": evaluation.test_loss,
                "accuracy": evaluation.accuracy,
                "batch_loss": batch_loss,
            }
        )

    def metrics(self) -> pa.Table:
        """One row per evaluation; see METRICS."""
        return pa.Table.from_pylist(self._metrics, schema=METRICS)

    def time_to(self, accuracy: float | None) -> float | None:
        """Seconds until an evaluation first reached that accuracy."""
        if accuracy is None:
            return None
        reached = (row["time_s"] for row in self._metrics if (row["accuracy"] or 0) >= accuracy)
        return next(reached, None)

    def summary(self) -> dict[str, Any]:
        """The part of summary.json that is about what happened."""
        workers = len(self.iterations)
        count = self._staleness.total()
        total = sum(staleness * n for staleness, n in self._staleness.items())
        last = self._metrics[-1] if self._metrics else {"train_loss": None, "accuracy": None}
        return {
            "iterations": self.iterations,
            "gradients_applied": self._applied,
            "gradients_dropped": self._dropped,
            "delayed_pulls": self._delayed,
            "staleness": {
                "mean": total / count if count else None,
                "max": max(self._staleness, default=None),
                "histogram": {str(k): self._staleness[k] for k in sorted(self._staleness)},
            },
            "seconds": {
                "compute": seconds(self._compute) / workers,
                "communicate": seconds(self._communicate) / workers,
                "wait": seconds(self._wait) / workers,
            },
            "train_loss": _finite(last["train_loss"]),
            "accuracy": _finite(last["accuracy"]),
        }


def _finite(value: float | None) -> float | None:
    """JSON knows no NaN."""
    return value if value is not None and math.isfinite(value) else None
