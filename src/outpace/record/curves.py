"""Which rows of metrics.parquet are the learning curve of a run.

Every point that a script logs is a row. Several workers may log, and their values differ: each has
its own mini-batches and, under most strategies, its own version of the parameters. The curve of a
quantity is that of the worker with the lowest number, from its first row on; until then the curve
is that of the lowest worker that has logged the quantity so far. So a script that logs on rank 0
only, as most do, shows what it logs, and a curve never jumps to and fro between workers.

Rows without a worker are evaluations of a task. They always count.

`on_curve` is this rule. Whatever asks when a run reaches its target (`stop`, `target`, comparisons,
advice, sweeps) looks at the values that it picks, and compares them with `Target.is_reached`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.support.targets import Target

QUANTITIES: Final = ("train_loss", "test_loss", "accuracy")
NO_WORKER: Final = np.iinfo(np.int64).max


def on_curve(
    workers: npt.NDArray[np.int64], known: npt.NDArray[np.bool_], leader: int = NO_WORKER
) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which values of a quantity are on the curve of the run, and its worker after them.

    Args:
        workers: that logged the values, in the order of the rows; -1: an evaluation of a task.
        known: whether there is a finite value.
        leader: the worker of the curve before these rows.
    """
    leaders = np.minimum.accumulate(np.minimum(np.where(known, workers, NO_WORKER), leader))
    return known & (workers == leaders), int(leaders[-1])


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
        counts, _ = on_curve(workers, known)
        values = pc.if_else(pa.array(counts), column, pa.scalar(None, column.type))
        metrics = metrics.set_column(place, name, values)
    return metrics


def best_of(curve: pa.Table) -> dict[str, dict[str, float] | None]:
    """Return the best value of each of QUANTITIES, and when it was first reached (s).

    The best accuracy is the highest, the best loss the lowest. None: there is no value.

    Args:
        curve: as returned by `curve_of`.
    """
    times = curve["time_s"].to_pylist()
    found: dict[str, dict[str, float] | None] = {}
    for name in QUANTITIES:
        known = [
            (value if name == "accuracy" else -value, -at, value)
            for at, value in zip(times, curve[name].to_pylist(), strict=True)
            if value is not None and math.isfinite(value)
        ]
        best = max(known, default=None)
        found[name] = None if best is None else {"value": best[2], "time_s": -best[1]}
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
