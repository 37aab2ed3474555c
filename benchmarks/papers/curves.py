"""The evaluations of a run, and when they came to what."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class Curve:
    """Of one run. error: why it ended early, or None. Gradients are per worker."""

    name: str
    workers: int
    seconds: list[float]
    gradients: list[float]
    loss: list[float]  # on the test data
    error: str | None

    @property
    def final(self) -> float:
        """The mean loss over the last quarter; infinite for a run that failed."""
        last = self.loss[-max(1, len(self.loss) // 4) :]
        return math.inf if self.error else sum(last) / len(last)

    def seconds_to(self, loss: float) -> float:
        return self._until(self.seconds, loss)

    def gradients_to(self, loss: float) -> float:
        """Of each worker."""
        return self._until(self.gradients, loss)

    def _until(self, axis: list[float], loss: float) -> float:
        """Where the curve first gets down to it, between evaluations along a straight line."""
        for (a, high), (b, low) in pairwise(zip(axis, self.loss, strict=True)):
            if low <= loss < high:
                return a + (b - a) * (high - loss) / (high - low)
        return math.inf


def read_curve(folder: Path) -> Curve:
    """From the folder of a run."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    rows = pq.read_table(folder / "metrics.parquet").to_pydict()
    workers = len(summary["iterations"])
    return Curve(
        folder.name,
        workers,
        rows["time_s"],
        [gradients / workers for gradients in rows["gradients"]],
        rows["test_loss"],
        summary["error"],
    )
