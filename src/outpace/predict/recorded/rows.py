"""The rows of a CSV or Parquet file of run times, sorted by worker and iteration.

The columns are worker, iteration, seconds and optionally node and censored. Or those of the
jobs that Alibaba released (cluster-trace-gpu-v2020, mini-batch-time): worker, time,
batch_time_norm. There the rows of a worker in the order of time are its iterations, and its
run times are normalised: not in seconds, but comparable with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.support.regular_files import named, regular

_OWN: Final = ("worker", "iteration", "seconds")
_ALIBABA: Final = ("worker", "time", "batch_time_norm")


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeRows:
    """Columns of equal length; each worker and iteration occurs once. Seconds are not checked."""

    worker: NDArray[np.int64]
    iteration: NDArray[np.int64]
    seconds: NDArray[np.float64]
    censored: NDArray[np.bool_]
    node: NDArray[np.int64] | None  # None if the file has no such column


def read_rows(path: Path) -> RunTimeRows:
    """Return the rows. Raises ConfigError for unknown columns, repetitions, and wrong values."""
    table = read_columns(path)
    names = set(table.column_names)
    own = names.issuperset(_OWN)
    if not own and not names.issuperset(_ALIBABA):
        raise ConfigError(
            f"{path}: needs the columns {', '.join(_OWN)} (or {', '.join(_ALIBABA)}), "
            f"and has {', '.join(table.column_names) or 'none'}"
        )
    if not table.num_rows:
        raise ConfigError(f"{path}: has no rows")
    worker_name, place_name, seconds_name = _OWN if own else _ALIBABA
    worker = _whole_numbers(table, worker_name, path)
    place = _whole_numbers(table, place_name, path)
    order = np.lexsort((place, worker))
    worker, place = worker[order], place[order]
    row = first((np.diff(worker) == 0) & (np.diff(place) == 0))
    if row is not None:
        raise ConfigError(f"{path}: worker {worker[row]} has iteration {place[row]} twice")
    return RunTimeRows(
        worker,
        place if own else places(worker),
        _numbers(table, seconds_name, path)[order],
        _censored(table, path)[order] if own else np.zeros(len(worker), np.bool_),
        _whole_numbers(table, "node", path)[order] if own and "node" in names else None,
    )


def places(worker: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the rows of each of the sorted workers 0, 1, 2, ..."""
    _, starts, counts = np.unique(worker, return_index=True, return_counts=True)
    return np.arange(len(worker)) - np.repeat(starts, counts)


def _censored(table: pa.Table, path: Path) -> NDArray[np.bool_]:
    if "censored" not in table.column_names:
        return np.zeros(table.num_rows, np.bool_)
    values = _numbers(table, "censored", path)
    row = first((values != 0) & (values != 1))
    if row is not None:
        raise ConfigError(
            f"{path}, row {row + 1}: censored must be true or false, not {values[row]:g}"
        )
    return values.astype(np.bool_)


def read_columns(path: Path) -> pa.Table:
    """Return the content of the file. Raises ConfigError if it cannot be read."""
    try:
        if path.suffix == ".parquet":
            return pa.parquet.read_table(regular(path, named), partitioning=None)
        return pa.csv.read_csv(regular(path, named))
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"cannot read the run times in {path}: {error}") from error


def _numbers(table: pa.Table, name: str, path: Path) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where one is missing. Raises ConfigError."""
    try:
        values = table[name].cast(pa.float64()).combine_chunks()
    except pa.ArrowException as error:
        raise ConfigError(f"{path}: column {name} must hold numbers: {error}") from error
    found: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return found


def _whole_numbers(table: pa.Table, name: str, path: Path) -> NDArray[np.int64]:
    """Return a column of whole numbers from 0 on. Raises ConfigError with the first wrong row."""
    values = _numbers(table, name, path)
    good = np.isfinite(values) & (values >= 0) & (values == np.floor(values)) & (values < 2**53)
    row = first(~good)
    if row is not None:
        raise ConfigError(
            f"{path}, row {row + 1}: {name} must be a whole number from 0 on, not {values[row]:g}"
        )
    return values.astype(np.int64)


def first(wrong: NDArray[np.bool_]) -> int | None:
    """Return the index of the first True, or None."""
    return int(wrong.argmax()) if wrong.any() else None
