"""Recorded run times: CSV or Parquet with columns worker, iteration, seconds.

Or as Alibaba released those of its jobs (cluster-trace-gpu-v2020, mini-batch-time):
columns worker, time, batch_time_norm; there a worker's rows in order of time are its
iterations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from outpace.errors import ConfigError

_OWN: Final = ("worker", "iteration", "seconds")
_ALIBABA: Final = ("worker", "time", "batch_time_norm")


def read_run_times(path: Path) -> dict[int, NDArray[np.float64]]:
    """The seconds of each worker's iterations, from 0 on.

    Raises ConfigError, naming worker and iteration, for gaps, repetitions, and what is no
    time.
    """
    table = _table(path)
    names = set(table.column_names)
    own = names.issuperset(_OWN)
    if not own and not names.issuperset(_ALIBABA):
        raise ConfigError(
            f"{path}: needs the columns {', '.join(_OWN)} (or {', '.join(_ALIBABA)}), "
            f"and has {', '.join(table.column_names) or 'none'}"
        )
    workers, places, times = (_column(table, name, path) for name in (_OWN if own else _ALIBABA))
    if not len(workers):
        raise ConfigError(f"{path}: has no rows")
    for name, values in (("worker", workers), (_OWN[1] if own else _ALIBABA[1], places)):
        row = _first(~(np.isfinite(values) & (values >= 0) & (values == np.floor(values))))
        if row is not None:
            raise ConfigError(
                f"{path}, row {row + 1}: {name} must be a number from 0 on, not {values[row]:g}"
            )
    order = np.lexsort((places, workers))
    workers, places, times = workers[order], places[order], times[order]
    found = {}
    for worker in np.unique(workers):
        mine = workers == worker
        found[int(worker)] = _one(times[mine], places[mine], int(worker), path, own)
    return found


def _one(
    times: NDArray[np.float64], places: NDArray[np.float64], worker: int, path: Path, own: bool
) -> NDArray[np.float64]:
    row = _first(np.diff(places) == 0)
    if row is not None:
        raise ConfigError(f"{path}: worker {worker} has iteration {places[row]:.0f} twice")
    if own:
        row = _first(places != np.arange(len(places)))
        if row is not None:
            raise ConfigError(
                f"{path}: worker {worker} lacks iteration {row}: "
                "its iterations must be 0, 1, 2, ... without a gap"
            )
    row = _first(~(np.isfinite(times) & (times >= 0)))
    if row is not None:
        raise ConfigError(
            f"{path}: worker {worker}, iteration {row}: {times[row]:g} is no time in seconds; "
            "it must be a finite number from 0 on"
        )
    return times


def _table(path: Path) -> pa.Table:
    try:
        if path.suffix == ".parquet":
            return pa.parquet.read_table(path, partitioning=None)
        return pa.csv.read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"cannot read the run times in {path}: {error}") from error


def _column(table: pa.Table, name: str, path: Path) -> NDArray[np.float64]:
    """As numbers; what is missing is NaN."""
    try:
        values = table[name].cast(pa.float64()).combine_chunks()
    except pa.ArrowException as error:
        raise ConfigError(f"{path}: column {name} must hold numbers: {error}") from error
    found: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return found


def _first(wrong: NDArray[np.bool_]) -> int | None:
    """The place of the first one, if there is one."""
    return int(wrong.argmax()) if wrong.any() else None
