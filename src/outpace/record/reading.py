"""Reads events of a trace.

Errors are one line that names the file of the run and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.record.folder import table_file
from outpace.record.tables import NONE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]
_TYPES: Final = dict.fromkeys(("event", "outcome", "reason"), pa.string())


def read_rows(path: Path, names: Sequence[str], chosen: pc.Expression | None = None) -> pa.Table:
    """Return columns of a trace; null where a row has no value.

    Raises:
        Unreadable: if the file is missing or damaged.
    """
    with reading(path):
        # Read-ahead threads and buffers would hold most of a long trace in memory at once.
        rows = pq.read_table(
            table_file(path),
            columns=list(names),
            filters=chosen,
            partitioning=None,
            use_threads=False,
            pre_buffer=False,
        )
        for name, column in zip(names, rows.columns, strict=True):
            is_integer = pa.types.is_integer(column.type) or pa.types.is_null(column.type)
            if name not in _TYPES and not is_integer:
                raise ValueError(f"its column {name} has {column.type} in place of integers")
        return rows.cast(pa.schema((name, _TYPES.get(name, pa.int64())) for name in names))


def read_event(path: Path, event: str, names: Sequence[str]) -> Columns:
    """Return columns for all rows of this event, a null integer as NONE. Raises Unreadable."""
    rows = read_rows(path, names, pc.field("event") == event)
    return {
        name: (column if name in _TYPES else column.fill_null(NONE)).to_numpy()
        for name, column in zip(names, rows.columns, strict=True)
    }


class IterationTimes(NamedTuple):
    """Times of each iteration and worker in s, shapes (T, N); NaN if there is no such iteration.

    Args:
        held: How long a server held the last pull, or how long the worker waited for others to join
            an average.
    """

    started: Floats
    computed: Floats
    ended: Floats
    held: Floats


def read_iterations(path: Path, workers: int) -> IterationTimes:
    """Return the times of the iterations of a trace.

    Raises:
        Unreadable: if the file is missing or damaged, or contradicts itself.
    """
    names = ("start_ns", "computed_ns", "end_ns", "held_ns")
    rows = read_event(path, "iteration", ("worker", "iteration", *names))
    with reading(path):
        worker, iteration = rows["worker"], rows["iteration"]
        if len(worker) and (worker.min() < 0 or worker.max() >= workers or iteration.min() < 0):
            raise ValueError("it names a worker or an iteration that the run does not have")
        shape = int(iteration.max(initial=-1)) + 1, workers
        if shape[0] > 16 * (len(worker) + 1024):
            raise ValueError("an iteration in it has a number that is too large")
        if rows["start_ns"].min(initial=0) < 0:
            raise ValueError("an iteration in it has no start")
        tables = []
        for name in names:
            table = np.full(shape, np.nan)
            table[iteration, worker] = np.where(rows[name] == NONE, np.nan, rows[name] * 1e-9)
            tables.append(table)
        found = IterationTimes(*tables)
        if (found.computed < found.started).any() or (found.ended < found.computed).any():
            raise ValueError("an iteration in it ends before it begins")
        return found


class Unreadable(ConfigError):
    """Raised if a file is missing or damaged; the message is one line with file and cause."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the exceptions that a missing or damaged file causes into Unreadable."""
    try:
        yield
    except FileNotFoundError:
        raise Unreadable(f"{path}: there is no such file") from None
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        MemoryError,
        pa.ArrowException,
    ) as error:
        raise Unreadable(f"{path}: {_cause(error)}") from error


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def _cause(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return one_line(error.strerror)
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return one_line(text) or type(error).__name__
