"""Runs of the variants of an experiment, and their evaluations as curves over time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outpace.cli.base import progress_bars
from outpace.errors import RunError
from outpace.experiment.compared import Variant
from outpace.experiment.comparison import compare
from outpace.record.folder import MESSAGES, TRACE


@dataclass(frozen=True, slots=True)
class Curve:
    """Evaluations of one run. error: why it ended early, or None. gradients: per worker."""

    name: str
    workers: int
    seconds: list[float]
    gradients: list[float]
    loss: list[float]  # on the test data
    error: str | None
    accuracy: list[float] = field(default_factory=list)  # on the test data, if there is one
    summary: dict[str, Any] = field(default_factory=dict)  # summary.json
    folder: Path | None = None

    @property
    def final(self) -> float:
        """Mean loss over the last quarter; infinite for a run that failed."""
        return math.inf if self.error else last_quarter(self.loss)

    def seconds_above(self, loss: float) -> float:
        """Return the total time with a larger loss; infinite if the loss was never that small.

        For a falling curve this is the time when it reaches the loss. If a curve goes up and down,
        one lucky evaluation has less effect on this time than on the first time below the loss.
        """
        return self._above(self.seconds, loss)

    def seconds_to_error(self, error: float) -> float:
        """Return the total time with a larger top-1 error; infinite if it was never that small."""
        return replace(self, loss=[1 - share for share in self.accuracy]).seconds_above(error)

    def gradients_above(self, loss: float) -> float:
        """Return the gradients per worker during which the loss was larger; see `seconds_above`."""
        return self._above(self.gradients, loss)

    def _above(self, axis: list[float], loss: float) -> float:
        """Interpolate linearly between evaluations."""
        if self.error is not None or min(self.loss) > loss:
            return math.inf
        total = 0.0
        for (a, before), (b, after) in pairwise(zip(axis, self.loss, strict=True)):
            low, high = sorted((before, after))
            share = 1.0 if low >= loss else max(0.0, high - loss) / (high - low or 1.0)
            total += share * (b - a)
        return total

    def trace(self, event: str, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows of the trace that have this event."""
        assert self.folder is not None
        table = pq.read_table(self.folder / TRACE, columns=["event", *columns])
        return table.filter(pc.equal(pc.cast(table["event"], "string"), event))

    def messages(self, kind: str) -> pa.Table:
        """Return the messages of this kind, of a run with `network.log`."""
        assert self.folder is not None
        table = pq.read_table(self.folder / MESSAGES)
        return table.filter(pc.field("kind") == kind)


def last_quarter(values: Sequence[float]) -> float:
    """Return the mean over the last quarter of the evaluations."""
    last = values[-max(1, len(values) // 4) :]
    return sum(last) / len(last)


Curves = Mapping[str, Sequence[Curve]]  # by variant
# By variant, as `Experiment`. A judge knows which kinds of laws and limits its YAML file has.
Experiments = Mapping[str, Any]


def read_curve(folder: Path, name: str | None = None) -> Curve:
    """Read the curve of a run from its folder; its default name is the name of the folder."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    rows = pq.read_table(folder / "metrics.parquet").to_pydict()
    workers = len(summary["iterations"])
    return Curve(
        name or folder.name,
        workers,
        rows["time_s"],
        [gradients / workers for gradients in rows["gradients"]],
        rows["test_loss"],
        summary["error"],
        rows["accuracy"],
        summary,
        folder,
    )


def curves_of(variants: Sequence[Variant], out: Path, *, seeds: int = 1) -> dict[str, list[Curve]]:
    """Run each variant on each seed in a folder of `out`, with a bar; return the curves by variant.

    A run that fails has an error in its curve.
    """
    with progress_bars() as bar:
        compare(variants, out, seeds=seeds, progress=bar("runs"))
    found = {}
    for variant in variants:
        folder, first = out / variant.name, variant.experiment.seed
        numbered = [folder / f"seed-{first + k}" for k in range(seeds)]
        found[variant.name] = [
            read_curve(each, variant.name) for each in (numbered if seeds > 1 else [folder])
        ]
    return found


def of_case(curves: Curves, case: str) -> Curves:
    """Return the curves of one case of a grid, by strategy."""
    prefix = f"{case} "
    return {
        name.removeprefix(prefix): runs for name, runs in curves.items() if name.startswith(prefix)
    }


def require_complete(runs: Sequence[Curve]) -> None:
    """Raise RunError if one of the runs failed."""
    for run in runs:
        if run.error is not None:
            raise RunError(f"{run.name} failed: {run.error}")
