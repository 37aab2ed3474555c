"""Columns of a CSV or Parquet file, as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from outpace.errors import ConfigError


def read_columns(path: Path) -> pa.Table:
    """Return the content of the file. Raises ConfigError if it cannot be read."""
    try:
        if path.suffix == ".parquet":
            return pa.parquet.read_table(path, partitioning=None)
        return pa.csv.read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"cannot read the run times in {path}: {error}") from error


def numbers(table: pa.Table, name: str, path: Path) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where one is missing. Raises ConfigError."""
    try:
        values = table[name].cast(pa.float64()).combine_chunks()
    except pa.ArrowException as error:
        raise ConfigError(f"{path}: column {name} must hold numbers: {error}") from error
    found: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return found


def whole_numbers(table: pa.Table, name: str, path: Path) -> NDArray[np.int64]:
    """Return a column of whole numbers from 0 on. Raises ConfigError with the first wrong row."""
    values = numbers(table, name, path)
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
