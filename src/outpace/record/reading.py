"""Reads a trace batch by batch, so that memory does not grow with the run.

What is wrong with a file of a run is said in one line that names the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.record.folder import table_file
from outpace.record.trace import NONE, SCHEMA

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]

BATCH = 1 << 14  # rows


def batches(
    path: Path, columns: Iterable[str], spans: Sequence[tuple[int, int]] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a trace in batches of at most BATCH rows.

    Row groups are read one by one, because a reader over many groups keeps memory for each.

    Args:
        spans: leave out row groups without an event in any of these spans of time (ns).
    """
    with pq.ParquetFile(table_file(path)) as file:
        for group in range(file.num_row_groups):
            if spans is None or overlaps(file.metadata.row_group(group), spans):
                yield from file.iter_batches(BATCH, [group], sorted(columns), use_threads=False)


def read_event(path: Path, event: str, names: Sequence[str]) -> Columns:
    """Return columns for all rows of this event. Raises Unreadable."""
    with reading(path):
        parts = [columns_of(rows, names, event) for rows in batches(path, ("event", *names))]
        return joined(names, parts)


def columns_of(rows: pa.RecordBatch, names: Sequence[str], event: str = "") -> Columns:
    """Return columns of words and of integers, in which a null becomes NONE.

    Args:
        event: leave out the rows of other events.

    Raises:
        ValueError: if a column does not have the type that a trace has.
    """
    chosen = rows.select(names)
    if event:
        chosen = chosen.filter(pc.equal(rows["event"], event))
    return {name: _values(name, chosen[name]) for name in names}


def _values(name: str, column: pa.Array) -> NDArray[Any]:
    found: NDArray[Any]
    if not pa.types.is_integer(SCHEMA.field(name).type):
        found = column.cast(pa.string()).to_numpy(zero_copy_only=False)
    elif pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        found = column.cast(pa.int64()).fill_null(NONE).to_numpy()
    else:
        raise ValueError(f"its column {name} has {column.type} in place of integers")
    return found


def chosen_rows(columns: Columns, chosen: Any) -> list[dict[str, Any]]:
    """Return the rows with these indices, or with a mask."""
    parts = (column[chosen].tolist() for column in columns.values())
    return [dict(zip(columns, values, strict=True)) for values in zip(*parts, strict=True)]


def joined(names: Iterable[str], parts: Sequence[Columns]) -> Columns:
    """Return the rows of several batches as one table."""
    empty = np.zeros(0, np.int64)
    return {name: np.concatenate([part[name] for part in parts] or [empty]) for name in names}


def overlaps(group: Any, spans: Sequence[tuple[int, int]]) -> bool:
    """True if the row group may have an event in a span, or the file gives no bounds for it."""
    columns = (group.column(place) for place in range(group.num_columns))
    bounds = {column.path_in_schema: column.statistics for column in columns}
    start, end = bounds.get("start_ns"), bounds.get("end_ns")
    if start is None or end is None or not (start.has_min_max and end.has_min_max):
        return True
    return any(end.max > low and start.min < high for low, high in spans)


class Unreadable(ConfigError):
    """A file is missing or damaged. The message is one line: the file and the cause."""


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
