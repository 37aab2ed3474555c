"""The quality of the parameters during a run: a row per evaluation, or per logged point.

A task is evaluated by the runtime, which calls `Metrics.add`. A script evaluates its model itself,
and `Metrics.log` makes each of its calls of `outpace.log` a row with the worker, its iteration, and
a column for every other logged number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import ConfigError
from outpace.record.curves import QUANTITIES, best_of, curve_of, time_to_target_s
from outpace.record.logged import MOST_NAMES
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
        ("worker", pa.int32()),  # worker that logged this point; null for an evaluation of a task
        ("iteration", pa.int64()),  # iteration of the worker; null for an evaluation of a task
    ]
)
# metadata: sum and number of batch losses at the last evaluation
_LOSSES: Final = b"outpace.batch-losses"
_CHUNK: Final = 8192  # number of points that are kept as Python objects before they become a table


class Metrics:
    """The evaluations of a run, and the points that its scripts log, in order.

    Attributes:
        last: the last finite value of each of QUANTITIES.
        observers: called with each row as soon as its values are known; None if the row has no such
            value.
        curve_observers: called with the values of a row that are on the curve of the run, if it has
            such values.
    """

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        self.observers: list[Callable[[Mapping[str, Any]], None]] = []
        self.curve_observers: list[Callable[[Mapping[str, Any]], None]] = []
        self._rows: list[dict[str, Any]] = []  # evaluations
        self._points: list[dict[str, Any]] = []  # points of scripts that are in no table yet
        self._tables: list[pa.Table] = []  # tables of earlier points
        self._schema = METRICS  # schema with a column for each logged name
        self._leader: dict[str, int] = {}  # by quantity: the worker of its curve
        # sum and number of batch losses at the last evaluation
        self._loss_sum, self._losses = 0.0, 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows) + len(self._points) + sum(map(len, self._tables))

    # -- tasks -------------------------------------------------------------------------

    def add(self, now: Time, updates: int, evaluation: Evaluation, totals: Totals) -> None:
        """Add a row.

        `batch_loss` of the row is the mean over the mini-batches since the previous row.
        """
        losses = totals.losses - self._losses
        batch_loss = (totals.loss_sum - self._loss_sum) / losses if losses else None
        self._loss_sum, self._losses = totals.loss_sum, totals.losses
        known = {"time_s": seconds(now), "updates": updates, "gradients": totals.applied}
        row = {**known, "batch_loss": batch_loss, **asdict(evaluation)}
        self._rows.append(row)
        if evaluation != Evaluation():
            for observer in self.observers:
                observer(row)
        self._take(evaluation, row)

    # -- scripts -----------------------------------------------------------------------

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
            values: the result of `outpace.record.logged.checked`.
            updates, gradients: numbers of updates and gradients of the run so far, if known.

        Returns:
            The values of the point that are on the curve of the run: None for a quantity that the
                point does not have, or that counts only if a worker with a lower number logs it.

        Raises:
            ConfigError: if there are too many different names.
        """
        for name in values:
            if name not in self._schema.names:
                self._schema = self._schema.append(pa.field(name, pa.float64()))
        if len(self._schema) > len(METRICS) + MOST_NAMES:
            raise ConfigError(
                f"outpace.log: more than {MOST_NAMES} different names were logged, among them "
                f"{', '.join(self._schema.names[-2:])}; use the same names in every call"
            )
        known = {"time_s": seconds(now), "updates": updates, "gradients": gradients}
        row = {**values, **known, "worker": worker, "iteration": iteration}
        self._points.append(row)
        if len(self._points) >= _CHUNK:
            self._tables.append(pa.Table.from_pylist(self._points, schema=self._schema))
            self._points = []
        on_curve = {}
        for name in QUANTITIES:
            if math.isfinite(value := values.get(name, math.nan)):
                leader = self._leader[name] = min(self._leader.get(name, worker), worker)
                if worker == leader:
                    on_curve[name] = value
        for observer in self.observers:
            observer(row)
        evaluation = Evaluation(**on_curve)
        self._take(evaluation, row)
        return evaluation

    # ----------------------------------------------------------------------------------

    def _take(self, evaluation: Evaluation, row: Mapping[str, Any]) -> None:
        """Note the values of a row that are on the curve, and call the observers of the curve."""
        for name, value in asdict(evaluation).items():
            if value is not None and math.isfinite(value):
                self.last[name] = value
        if evaluation != Evaluation():
            for observer in self.curve_observers:
                observer({**row, **asdict(evaluation)})

    def table(self) -> pa.Table:
        """Return one row per evaluation or point; see METRICS.

        The scalars that a script has logged are further columns of type float64.
        """
        evaluated = pa.Table.from_pylist(self._rows, schema=METRICS)
        points = pa.Table.from_pylist(self._points, schema=self._schema)
        return pa.concat_tables([evaluated, *self._tables, points], promote_options="default")

    def kept(self) -> pa.Table:
        """Return `table()` for a checkpoint; `take_up` is the inverse."""
        known = {_LOSSES: json.dumps([self._loss_sum, self._losses])}
        return self.table().replace_schema_metadata(known)

    def take_up(self, kept: pa.Table) -> None:
        """Begin with the rows that `kept` returned in an earlier session of the run."""
        self._loss_sum, self._losses = json.loads(kept.schema.metadata[_LOSSES])
        is_point = pc.is_valid(kept["worker"])
        self._rows = kept.filter(pc.invert(is_point)).select(METRICS.names).to_pylist()
        points = kept.filter(is_point)
        self._points, self._tables = [], [points]
        self._schema, self._leader = points.schema.remove_metadata(), {}
        for name in QUANTITIES:
            finite = points.filter(pc.fill_null(pc.is_finite(points[name]), False))
            if len(finite):
                self._leader[name] = pc.min(finite["worker"]).as_py()
        for name in QUANTITIES:
            known = curve_of(kept)[name].drop_null()
            finite = known.filter(pc.is_finite(known))
            if len(finite):
                self.last[name] = finite[-1].as_py()

    def summary(self, target: Target | None = None) -> dict[str, Any]:
        """Return the part of summary.json about the quality of the result.

        For a task, these are the values of the last evaluation; for a script, the last value of
        each quantity on the curve of the run.

        Args:
            target: target of the curve; the summary says when the curve reaches it.
        """
        curve = curve_of(self.table())
        is_script = len(self) > len(self._rows)
        last: dict[str, float | None] = {}
        for name in QUANTITIES:
            values = curve[name].drop_null() if is_script else curve[name]
            value = values[-1].as_py() if len(values) else None
            # JSON has neither NaN nor infinity.
            last[name] = value if value is not None and math.isfinite(value) else None
        found = {"time_to_target_s": time_to_target_s(curve, target), "best": best_of(curve)}
        return last | found
