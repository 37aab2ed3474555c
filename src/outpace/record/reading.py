"""Reads the events of a trace. What is wrong with a file is said in one line that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from outpace.record.tables import NONE
from outpace.record.trace import SCHEMA

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]


def read_event(path: Path, event: str, names: Sequence[str]) -> Columns:
    """Return columns of words and of integers for all rows of this event; a null is NONE.

    Raises:
        Unreadable: if the file is missing or damaged, or a column has not the type that it has in
            a trace.
    """
    chosen, columns = pc.field("event") == event, list(names)
    with reading(path):
        rows = pq.read_table(table_file(path), columns=columns, filters=chosen, partitioning=None)
        return {name: _values(name, rows[name]) for name in columns}


def _values(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    found: NDArray[Any]
    if not pa.types.is_integer(SCHEMA.field(name).type):
        found = column.cast(pa.string()).to_numpy()
    elif pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        found = column.cast(pa.int64()).fill_null(NONE).to_numpy()
    else:
        raise ValueError(f"its column {name} has {column.type} in place of integers")
    return found


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
