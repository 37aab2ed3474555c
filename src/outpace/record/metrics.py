"""The quality of the parameters during a run: one row per evaluation."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from outpace.record.totals import Totals
from outpace.support.units import Time, seconds
from outpace.tasks import Evaluation

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


class Metrics:
    """The evaluations of a run, in order."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._loss_sum, self._losses = 0.0, 0  # at the last evaluation

    def add(self, now: Time, updates: int, evaluation: Evaluation, totals: Totals) -> int:
        """Add a row and return its index, for `fill` if the values are not known yet.

        `batch_loss` is the mean over the mini-batches since the last row.
        """
        losses = totals.losses - self._losses
        batch_loss = (totals.loss_sum - self._loss_sum) / losses if losses else None
        self._loss_sum, self._losses = totals.loss_sum, totals.losses
        self._rows.append(
            {
                "time_s": seconds(now),
                "updates": updates,
                "gradients": totals.applied,
                "batch_loss": batch_loss,
                **asdict(evaluation),
            }
        )
        return len(self._rows) - 1

    def fill(self, place: int, evaluation: Evaluation) -> None:
        """Set the values of a row."""
        self._rows[place] |= asdict(evaluation)

    def drop(self, place: int) -> None:
        """Remove a row; the rows before it keep their indices."""
        del self._rows[place]

    def table(self) -> pa.Table:
        """Return one row per evaluation; see METRICS."""
        return pa.Table.from_pylist(self._rows, schema=METRICS)

    def summary(self, target_accuracy: float | None) -> dict[str, Any]:
        """Return the part of summary.json about the quality of the result."""
        last = self._rows[-1] if self._rows else {"train_loss": None, "accuracy": None}
        target = math.inf if target_accuracy is None else target_accuracy
        reached = (row["time_s"] for row in self._rows if (row["accuracy"] or 0) >= target)
        return {
            "train_loss": _finite(last["train_loss"]),
            "accuracy": _finite(last["accuracy"]),
            "time_to_target_s": next(reached, None),
        }


def _finite(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
