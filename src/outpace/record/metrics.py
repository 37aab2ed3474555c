"""The quality of the parameters during a run: a row per evaluation, or per point of a script.

A task is evaluated by the runtime, which calls `Metrics.add`. A script evaluates itself, and each
of its calls of `outpace.log` becomes a row by `Metrics.log`, with the worker, its iteration, and a
column for every other number that was logged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from outpace.record.curves import QUANTITIES, best_of, curve_of, time_to_target_s
from outpace.record.logged import Points
from outpace.record.totals import Totals
from outpace.support.targets import Target
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
        ("worker", pa.int32()),  # that logged this point; null for an evaluation of a task
        ("iteration", pa.int64()),  # that the worker was in; null for an evaluation of a task
    ]
)

_LOSSES: Final = b"outpace.batch-losses"  # metadata: sum and number at the last evaluation


class Metrics:
    """The evaluations of a run, and the points that its script logs, in order."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._points = Points()
        self.last: dict[str, float] = {}  # the last finite value of each of QUANTITIES
        # Called with each row, as soon as its values are known; None: the row has no such value.
        self.observers: list[Callable[[Mapping[str, Any]], None]] = []
        # Called with the values of a row that are on the curve of the run, if there are any.
        self.curve_observers: list[Callable[[Mapping[str, Any]], None]] = []
        self._loss_sum, self._losses = 0.0, 0  # at the last evaluation

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows) + len(self._points)

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
        self._evaluated(evaluation, self._rows[-1])
        return len(self._rows) - 1

    def fill(self, place: int, evaluation: Evaluation) -> None:
        """Set the values of a row."""
        self._rows[place] |= asdict(evaluation)
        self._evaluated(evaluation, self._rows[place])

    def drop(self, place: int) -> None:
        """Remove a row; the rows before it keep their indices."""
        del self._rows[place]

    def log(
        self,
        now: Time,
        worker: int,
        iteration: int,
        values: Mapping[str, float],
        *,
        updates: int | None = None,
        gradients: int | None = None,
    ) -> Evaluation:
        """Add a point that a worker of a script has logged.

        Args:
            now: ns since the start of the run.
            values: by column, as `outpace.record.logged.checked` returns them.
            updates, gradients: of the run so far, if they are known.

        Returns:
            What the point says about the run as a whole: None for a quantity that the point does
            not have, or that counts only from a worker with a lower number.

        Raises:
            ConfigError: if there are too many different names.
        """
        row = {
            "time_s": seconds(now),
            "updates": updates,
            "gradients": gradients,
            "worker": worker,
            "iteration": iteration,
        }
        self._points.add(row, values, METRICS)
        known = {name: value for name, value in values.items() if name in QUANTITIES}
        evaluation = Evaluation(**dict(self._points.on_curve(worker, known)))
        for observer in self.observers:
            observer({**values, **row})
        self._know(evaluation, row)
        return evaluation

    def _evaluated(self, evaluation: Evaluation, row: Mapping[str, Any]) -> None:
        """Tell the observers of an evaluation of a task."""
        if evaluation != Evaluation():
            for observer in self.observers:
                observer(row)
        self._know(evaluation, row)

    def _know(self, evaluation: Evaluation, row: Mapping[str, Any]) -> None:
        """Note the values of a row that are on the curve, and tell its observers."""
        for name, value in asdict(evaluation).items():
            if (number := _finite(value)) is not None:
                self.last[name] = number
        if evaluation != Evaluation():
            for observer in self.curve_observers:
                observer({**row, **asdict(evaluation)})

    def table(self) -> pa.Table:
        """Return one row per evaluation or point; see METRICS.

        The scalars that a script has logged are further columns of type float64.
        """
        evaluated = pa.Table.from_pylist(self._rows, schema=METRICS)
        return pa.concat_tables(
            [evaluated, *self._points.tables(METRICS)], promote_options="default"
        )

    def kept(self) -> pa.Table:
        """Return `table()` for a checkpoint; `take_up` is the inverse."""
        known = {_LOSSES: json.dumps([self._loss_sum, self._losses])}
        return self.table().replace_schema_metadata(known)

    def take_up(self, kept: pa.Table) -> None:
        """Begin with the rows that `kept` returned in an earlier session of the run."""
        self._loss_sum, self._losses = json.loads(kept.schema.metadata[_LOSSES])
        is_point = pc.is_valid(kept["worker"])
        self._rows = kept.filter(pc.invert(is_point)).select(METRICS.names).to_pylist()
        self._points.take_up(kept.filter(is_point), METRICS)
        for name in QUANTITIES:
            known = curve_of(kept)[name].drop_null()
            finite = known.filter(pc.is_finite(known))
            if len(finite):
                self.last[name] = finite[-1].as_py()

    def summary(self, target: Target | None = None) -> dict[str, Any]:
        """Return the part of summary.json about the quality of the result.

        For a task, the values of the last evaluation. For a script, the last value of each quantity
        on the curve of the run.

        Args:
            target: the time at which the curve reaches it is part of the summary.
        """
        curve = curve_of(self.table())
        last = {name: curve[name].to_pylist()[-1:] for name in QUANTITIES}
        if len(self._points):
            last = {name: curve[name].drop_null()[-1:].to_pylist() for name in QUANTITIES}
        return {
            **{name: _finite(values[0] if values else None) for name, values in last.items()},
            "time_to_target_s": time_to_target_s(curve, target),
            "best": best_of(curve),
        }


def _finite(value: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
