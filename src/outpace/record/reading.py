"""Reads events of a trace.

What is wrong with a file of a run is said in one line that names the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.record.folder import table_file
from outpace.record.tables import NONE

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
_TYPES: Final = dict.fromkeys(("event", "outcome", "reason"), pa.string())


def read_rows(path: Path, names: Sequence[str], chosen: pc.Expression | None = None) -> pa.Table:
    """Return columns of a trace; null where a row has no value.

    Raises:
        Unreadable: if the file is missing or damaged.
    """
    with reading(path):
        # Threads and buffers that read ahead would hold most of a long trace at once.
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
