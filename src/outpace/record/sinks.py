"""Places where a trace is kept: memory, or a Parquet file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import RunError
from outpace.record.trace import CHUNK, SCHEMA


class MemorySink:
    """Keeps a trace in memory."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def close(self) -> None:
        pass

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, schema=SCHEMA)


class ParquetSink:
    """Writes a trace to a file, which gets its final name when it is complete.

    The first row that cannot be written raises RunError; all later ones are dropped, so that the
    run can still end in order.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(path.name + ".part")
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._failed = False

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self._failed:
            return
        try:
            self._add(batch)
        except OSError as error:
            self._failed = True
            raise RunError(f"cannot write the trace of the run, {self._path}: {error}") from error

    def _add(self, batch: pa.RecordBatch) -> None:
        self._open()
        self._waiting.append(batch)  # small row groups cost more than their rows
        if sum(part.num_rows for part in self._waiting) >= CHUNK:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, schema=SCHEMA)
            self._waiting.clear()
            self._open().write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        if self._failed:
            self._partial.unlink(missing_ok=True)
            return
        try:
            self._write()
            self._open().close()
            self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)

    def table(self) -> pa.Table:
        return pq.read_table(self._path)

    def _open(self) -> pq.ParquetWriter:
        # Opened only now, because the folder is made only when the run is known to be possible.
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._partial, SCHEMA, compression="zstd")
        return self._writer
