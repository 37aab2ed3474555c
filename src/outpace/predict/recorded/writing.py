"""Writing a table of run times to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import ConfigError
from outpace.predict.recorded.table import RunTimes, require_valid
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


def write(times: RunTimes, path: Path) -> None:
    """Write a table as Parquet, complete or not at all; equal tables make equal files.

    There is no row for an iteration in which a worker was not there.

    Raises:
        ConfigError: if the table is not valid or the file cannot be written.
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
