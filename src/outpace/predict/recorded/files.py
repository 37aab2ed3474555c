"""Run times from and to files, as a table or worker by worker for replay."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.predict.recorded.rows import first, places, read_rows
from outpace.predict.recorded.table import Nodes, RunTimes, consecutive_nodes, require_valid
from outpace.support.replacing import replace_file

SCHEMA: Final = pa.schema(
    [
        ("worker", pa.int32()),
        ("node", pa.int32()),
        ("iteration", pa.int64()),
        ("seconds", pa.float64()),
        ("censored", pa.bool_()),
    ]
)


def read(path: Path, workers_per_node: int | None = None) -> RunTimes:
    """Read a table from CSV or Parquet; see `rows` for the columns.

    An iteration without a row of a worker is NaN: the worker was not there. By default the file
    says which workers share a node, and without such a column all share one; with
    `workers_per_node`, so many consecutive workers do. Raises ConfigError for times that are not
    positive and finite, and for workers and iterations that are not numbered 0, 1, 2, ...
    """
    rows = read_rows(path)
    workers = _numbered(rows.worker, "worker", path)
    shape = _numbered(rows.iteration, "iteration", path), workers
    row = first(~np.isfinite(rows.seconds))
    if row is not None:
        raise ConfigError(
            f"{path}: worker {rows.worker[row]}, iteration {rows.iteration[row]}: "
            f"{rows.seconds[row]:g} is not a time in seconds; leave out rows of unknown times"
        )
    seconds, censored = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    at = rows.iteration, rows.worker
    seconds[at], censored[at] = rows.seconds, rows.censored
    if workers_per_node is None and rows.node is not None:
        node = _nodes(rows.worker, rows.node, workers, path)
    else:
        node = consecutive_nodes(workers, workers_per_node)
    return require_valid(RunTimes(seconds, censored, node), path)


def write(times: RunTimes, path: Path) -> None:
    """Write a table as Parquet, complete or not at all; equal tables make equal files.

    There is no row for an iteration in which a worker was not there. Raises ConfigError.
    """
    require_valid(times, path)
    iteration, worker = np.nonzero(~np.isnan(times.seconds))
    at = iteration, worker
    columns = [worker, times.node[worker], iteration, times.seconds[at], times.censored[at]]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    try:
        replace_file(path, lambda partial: pq.write_table(table, partial, compression="zstd"))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def read_run_times(path: Path) -> dict[int, NDArray[np.float64]]:
    """Return the seconds of each worker's iterations from 0 on, for replay.

    Raises ConfigError for gaps, repetitions, times that are negative or not finite, and
    iterations that were cut off; the message names worker and iteration.
    """
    rows = read_rows(path)
    worker, times, expected = rows.worker, rows.seconds, places(rows.worker)
    row = first(rows.iteration != expected)
    if row is not None:
        raise ConfigError(
            f"{path}: worker {worker[row]} lacks iteration {expected[row]}: "
            "its iterations must be 0, 1, 2, ... without a gap"
        )
    row = first(~(np.isfinite(times) & (times >= 0)))
    if row is not None:
        raise ConfigError(
            f"{path}: worker {worker[row]}, iteration {expected[row]}: {times[row]:g} is not a "
            "time in seconds; it must be a finite number from 0 on"
        )
    row = first(rows.censored)
    if row is not None:
        raise ConfigError(
            f"{path}: worker {worker[row]}, iteration {expected[row]} was cut off after "
            f"{times[row]:g} s, so its run time is unknown; replay a run that waited for all "
            "workers"
        )
    workers, starts = np.unique(worker, return_index=True)
    return dict(zip(workers.tolist(), np.split(times, starts[1:]), strict=True))


def read_nodes(path: Path, workers: int) -> Nodes | None:
    """Return the nodes of the workers 0 to `workers` - 1; None if the file does not say.

    Raises ConfigError if the file has other workers, or a worker on two nodes.
    """
    rows = read_rows(path)
    if rows.node is None:
        return None
    known = _numbered(rows.worker, "worker", path)
    if known != workers:
        raise ConfigError(f"{path}: has run times of {known} workers, and there are {workers}")
    return _nodes(rows.worker, rows.node, workers, path)


def _numbered(values: NDArray[np.int64], noun: str, path: Path) -> int:
    """Return how many different values there are. Raises ConfigError unless 0, 1, 2, ..."""
    known = np.unique(values)
    place = first(known != np.arange(len(known)))
    if place is not None:
        raise ConfigError(
            f"{path}: has no rows of {noun} {place}, but of {noun} {known[-1]}: "
            "they must be 0, 1, 2, ... without a gap"
        )
    return len(known)


def _nodes(worker: NDArray[np.int64], node: NDArray[np.int64], workers: int, path: Path) -> Nodes:
    found = np.zeros(workers, np.int64)
    found[worker] = node
    row = first(found[worker] != node)
    if row is not None:
        raise ConfigError(
            f"{path}: worker {worker[row]} is on node {node[row]} and on node "
            f"{found[worker[row]]}; it must stay on one"
        )
    return found
