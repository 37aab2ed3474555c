"""Which rows of metrics.parquet are the learning curve of a run.

Every point that a script logs is a row. Several workers may log, and their values differ: each has
its own mini-batches and, under most strategies, its own version of the parameters. The curve of a
quantity is that of the worker with the lowest number, from its first row on; until then the curve
is that of the lowest worker that has logged the quantity so far. So a script that logs on rank 0
only, as most do, shows what it logs, and a curve never jumps to and fro between workers.

Rows without a worker are evaluations of a task. They always count.

Whatever asks when a run reaches its target (`stop`, `target`, comparisons,
advice, sweeps) looks at the values that it picks, and compares them with `Target.is_reached`.
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
    """Return the metrics with null where a value of QUANTITIES is not on the curve of the run.

    A value that is not finite is not on the curve. Tables of other versions, in which a column is
    missing or has another type, are returned unchanged as far as they are not understood.
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

    The best accuracy is the highest, the best loss the lowest. None: there is no value.

    Args:
        curve: as returned by `curve_of`.
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
        curve: as returned by `curve_of`.
    """
    if target is None:
        return None
    columns = (curve[name].to_pylist() for name in ("time_s", "accuracy", "train_loss"))
    for at, accuracy, train_loss in zip(*columns, strict=True):
        if target.is_reached(accuracy, train_loss):
            return float(at)
    return None
