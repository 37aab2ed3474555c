"""Recorded run times as a table of iterations by workers, and its files.

A file is CSV or Parquet with the columns worker, iteration, seconds and optionally node and
censored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.support.regular_files import named, regular
from outpace.support.replacing import replace_file

Seconds: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Nodes: TypeAlias = NDArray[np.int64]
SCHEMA: Final = pa.schema(
    [
        ("worker", pa.int32()),
        ("node", pa.int32()),
        ("iteration", pa.int64()),
        ("seconds", pa.float64()),
        ("censored", pa.bool_()),
    ]
)
_NEEDED: Final = ("worker", "iteration", "seconds")
_SHORT_S: Final = 10.0  # seconds of a recording below which it is too short to judge
# seconds of an iteration below which the clock and pauses of the system matter
_SHORT_STEP_S: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class RunTimes:
    """The run times of N workers in T consecutive iterations.

    Args:
        seconds: run times, shape (T, N); NaN if a worker was absent.
        censored: shape (T, N); True if the worker was stopped after that time and would have taken
            longer.
        node: node of each worker, shape (N,); workers on one node tend to slow down together.
    """

    seconds: Seconds
    censored: Mask
    node: Nodes

    @property
    def iterations(self) -> int:
        return len(self.seconds)

    @property
    def workers(self) -> int:
        return len(self.node)

    def describe_invalid(self, *, absent: bool = True) -> str | None:
        """Describe the first time that is not positive and finite; None if there is none.

        absent: True: NaN is allowed.
        """
        wrong = ~(np.isfinite(self.seconds) & (self.seconds > 0))
        if absent:
            wrong &= ~np.isnan(self.seconds)
        if not wrong.any():
            return None
        iteration, worker = (int(place) for place in np.argwhere(wrong)[0])
        time_s = self.seconds[iteration, worker]
        return f"worker {worker}, iteration {iteration}: {time_s:g} is not a run time"


def require_valid(times: RunTimes, source: object) -> RunTimes:
    """Return the table unchanged.

    Raises ConfigError, which begins with `source`, if the table is empty, a time is not positive
    and finite, or all workers were absent from an iteration.
    """
    if not times.iterations or not times.workers:
        raise ConfigError(f"{source}: has no run times")
    if problem := times.describe_invalid():
        raise ConfigError(f"{source}: {problem}; it must be positive and finite")
    empty = np.isnan(times.seconds).all(axis=1)
    if empty.any():
        raise ConfigError(f"{source}: no worker has a run time of iteration {int(empty.argmax())}")
    return times


def require_whole(times: RunTimes) -> None:
    """Raise ConfigError if a worker was cut off."""
    if times.censored.any():
        iteration, worker = np.argwhere(times.censored)[0]
        raise ConfigError(
            f"worker {worker} was cut off in iteration {iteration}, so it is unknown what waiting "
            "for it would have cost; record a run that waits for all workers (sync: {kind: bsp})"
        )


def consecutive_nodes(workers: int, per_node: int | None) -> Nodes:
    """Return the nodes of workers that share a node with their neighbours, shape (N,).

    per_node: workers per node; None: all share one. Raises ConfigError if it is less than 1.
    """
    if per_node is None:
        return np.zeros(workers, np.int64)
    if per_node < 1:
        raise ConfigError(f"workers per node must be at least 1, not {per_node}")
    return np.arange(workers) // per_node


def too_short(seconds: float, step_s: float) -> str:
    """Return a text that says why a recording is too short to judge; empty if it is long enough.

    Args:
        seconds: length of the recording.
        step_s: mean length of an iteration.
    """
    if seconds >= _SHORT_S and step_s >= _SHORT_STEP_S:
        return ""
    return (
        f"too short to judge: {seconds:.2g} s are recorded, and an iteration takes "
        f"{step_s:.2g} s, so that pauses of the machine count as much as what is compared; "
        f"record at least {_SHORT_S:g} s, with iterations of {_SHORT_STEP_S:g} s or more"
    )


def read(path: Path, workers_per_node: int | None = None) -> RunTimes:
    """Read a table from CSV or Parquet.

    If a worker has no row for an iteration, its time is NaN: the worker was absent. By default the
    file says which workers share a node; without such a column all share one node. With
    `workers_per_node`, this number of consecutive workers share a node.

    Raises:
        ConfigError: if the file cannot be read or lacks a column, for times that are not positive
            and finite, for repeated rows, and for workers and iterations that are not numbered
            0, 1, 2, ...
    """
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(regular(path, named), partitioning=None)
        else:
            table = pa.csv.read_csv(regular(path, named))
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"cannot read the run times in {path}: {error}") from error
    has = table.column_names
    if not set(has).issuperset(_NEEDED):
        raise ConfigError(f"{path}: needs the columns {', '.join(_NEEDED)}, and has {has}")
    rows = {name: _numbers(table, name, path) for name in SCHEMA.names if name in has}
    if not table.num_rows:
        raise ConfigError(f"{path}: has no rows")
    for name in rows.keys() - {"seconds"}:
        column, most = rows[name], 1 if name == "censored" else 2**53
        whole = np.isfinite(column) & (column == np.floor(column))
        row = first(~(whole & (column >= 0) & (column <= most)))
        if row is not None:
            need = "true or false" if name == "censored" else "a whole number from 0 on"
            raise ConfigError(f"{path}, row {row + 1}: {name} must be {need}, not {column[row]:g}")
    worker, iteration = (rows[name].astype(np.int64) for name in ("worker", "iteration"))
    for name, numbers in (("worker", np.unique(worker)), ("iteration", np.unique(iteration))):
        gap = first(numbers != np.arange(len(numbers)))
        if gap is not None:
            raise ConfigError(
                f"{path}: has no rows of {name} {gap}: they must be 0, 1, 2, ... without a gap"
            )
    shape = int(iteration.max()) + 1, int(worker.max()) + 1
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, (iteration, worker), 1)
    for wrong, problem in (
        (counts[iteration, worker] > 1, "is there twice"),
        (~np.isfinite(rows["seconds"]), "has no time in seconds; leave out such rows"),
    ):
        row = first(wrong)
        if row is not None:
            raise ConfigError(f"{path}: worker {worker[row]}, iteration {iteration[row]} {problem}")
    seconds, censored = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    seconds[iteration, worker] = rows["seconds"]
    censored[iteration, worker] = rows.get("censored", 0) == 1
    node = consecutive_nodes(shape[1], workers_per_node)
    if workers_per_node is None and "node" in rows:
        node[worker] = rows["node"]
        row = first(node[worker] != rows["node"])
        if row is not None:
            raise ConfigError(f"{path}: worker {worker[row]} is on two nodes; it must stay on one")
    return require_valid(RunTimes(seconds, censored, node), path)


def first(wrong: Mask) -> int | None:
    """Return the index of the first True, or None."""
    return int(wrong.argmax()) if wrong.any() else None


def _numbers(table: pa.Table, name: str, path: Path) -> Seconds:
    """Return a column as numbers, NaN where one is missing. Raises ConfigError."""
    try:
        values = table[name].cast(pa.float64()).combine_chunks()
    except pa.ArrowException as error:
        raise ConfigError(f"{path}: column {name} must hold numbers: {error}") from error
    found: Seconds = values.to_numpy(zero_copy_only=False)
    return found


def read_run_times(path: Path) -> dict[int, Seconds]:
    """Return the seconds of each worker's iterations from 0 on, for replay.

    Raises ConfigError like `read`, and also if a worker lacks an iteration before its last one, or
    an iteration was cut off.
    """
    times = read(path)
    known = ~np.isnan(times.seconds)
    for wrong, problem in (
        (times.censored, "was cut off, so its run time is unknown"),
        (~known[:-1] & known[1:], "has no run time, and a later one has"),
    ):
        if wrong.any():
            iteration, worker = np.argwhere(wrong)[0]
            raise ConfigError(
                f"{path}: worker {worker}, iteration {iteration} {problem}; replay a run that "
                "waited for all workers"
            )
    return {n: times.seconds[known[:, n], n] for n in range(times.workers)}


def write(times: RunTimes, path: Path) -> None:
    """Write a table as Parquet, completely or not at all; equal tables give equal files.

    If a worker was absent from an iteration, there is no row for it. Raises ConfigError.
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
