"""Reads a trace batch by batch, so that memory does not grow with the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Columns = dict[str, Ints]
NULL: Final = -(2**63)

BATCH = 1 << 14  # rows


def batches(
    path: Path, columns: Iterable[str], spans: Sequence[tuple[int, int]] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a trace in batches of at most BATCH rows.

    Row groups are read one by one, because a reader over many groups keeps memory for each.

    Args:
        spans: leave out row groups without an event in any of these spans of time (ns).
    """
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            if spans is None or overlaps(file.metadata.row_group(group), spans):
                yield from file.iter_batches(BATCH, [group], sorted(columns), use_threads=False)


def numbers(rows: pa.RecordBatch, names: Iterable[str]) -> Columns:
    """Return columns of integers; a null becomes NULL."""
    return {name: rows[name].cast(pa.int64()).fill_null(NULL).to_numpy() for name in names}


def is_event(rows: pa.RecordBatch, event: str) -> pa.Array:
    """Return a mask of the rows of this event."""
    return pc.equal(rows["event"], event)


def rows_of(rows: pa.RecordBatch, event: str, names: Sequence[str]) -> Columns:
    """Return columns of integers for the rows of this event; a null becomes NULL."""
    return numbers(rows.select(list(names)).filter(is_event(rows, event)), names)


def overlaps(group: Any, spans: Sequence[tuple[int, int]]) -> bool:
    """True if the row group may have an event in a span, or the file gives no bounds for it."""
    columns = (group.column(place) for place in range(group.num_columns))
    bounds = {column.path_in_schema: column.statistics for column in columns}
    start, end = bounds.get("start_ns"), bounds.get("end_ns")
    if start is None or end is None or not (start.has_min_max and end.has_min_max):
        return True
    return any(end.max > low and start.min < high for low, high in spans)
