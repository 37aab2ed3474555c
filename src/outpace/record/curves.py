"""Chooses the rows of metrics.parquet that form the learning curve of a run.

Every point that a script logs is a row. Several workers may log, and their values differ: each has
its own mini-batches and, under most strategies, its own version of the parameters. The curve of a
quantity consists of the rows of the worker with the lowest number, from its first row on; before
that, of the rows of the lowest worker that has logged the quantity so far. So the curve of a script
that logs only on rank 0, as most do, has everything that it logs, and no curve jumps back and forth
between workers.

Rows without a worker are evaluations of a task. They always count.

`stop`, `target`, comparisons, advice and sweeps use only these rows to decide when a run reaches
its target, and compare them with `Target.is_reached`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.support.targets import Target

QUANTITIES: Final = ("train_loss", "test_loss", "accuracy")
_NO_WORKER: Final = np.iinfo(np.int64).max


def curve_of(metrics: pa.Table) -> pa.Table:
    """Return the metrics with null for each value of QUANTITIES that is not on the run's curve.

    A value that is not finite is not on the curve. In tables of other versions, columns that are
    missing or have another type are not changed.
    """
    if "worker" not in metrics.column_names or not pa.types.is_integer(metrics["worker"].type):
        return metrics
    if metrics["worker"].null_count == len(metrics):
        return metrics
    workers = np.asarray(metrics["worker"].fill_null(-1), dtype=np.int64)
    for name in QUANTITIES:
        place = metrics.schema.get_field_index(name)
        if place < 0 or not pa.types.is_floating(metrics.schema.field(place).type):
            continue
        column = metrics[name]
        known = np.asarray(pc.is_finite(column).fill_null(False), dtype=bool)
        leaders = np.minimum.accumulate(np.where(known, workers, _NO_WORKER))
        counts = pa.array(known & (workers == leaders))
        values = pc.if_else(counts, column, pa.scalar(None, column.type))
        metrics = metrics.set_column(place, name, values)
    return metrics


def best_of(curve: pa.Table) -> dict[str, dict[str, float] | None]:
    """Return the best value of each of QUANTITIES, and when it was first reached (s).

    The best accuracy is the highest, and the best loss is the lowest; None if there is no value.

    Args:
        curve: a curve that `curve_of` has returned.
    """
    found: dict[str, dict[str, float] | None] = {}
    for name in QUANTITIES:
        known = curve.filter(pc.fill_null(pc.is_finite(curve[name]), False))
        found[name] = None
        if len(known):
            best = (pc.max if name == "accuracy" else pc.min)(known[name])
            first = known["time_s"][pc.index(known[name], best).as_py()]
            found[name] = {"value": best.as_py(), "time_s": first.as_py()}
    return found


def time_to_target_s(curve: pa.Table, target: Target | None) -> float | None:
    """Return the time at which a curve reaches its target, in seconds; None if it does not.

    Args:
        curve: a curve that `curve_of` has returned.
    """
    if target is None:
        return None
    columns = (curve[name].to_pylist() for name in ("time_s", "accuracy", "train_loss"))
    for at, accuracy, train_loss in zip(*columns, strict=True):
        if target.is_reached(accuracy, train_loss):
            return float(at)
    return None
