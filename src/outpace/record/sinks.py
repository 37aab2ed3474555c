"""Places where the rows of a run are kept: memory, a Parquet file, or nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import RunError
from outpace.record.trace import CHUNK, SCHEMA
from outpace.support.regular_files import regular
from outpace.support.replacing import partial_of

_SMALL: Final = 64  # batches that are kept before they are joined


class MemorySink:
    """Keeps rows in memory; `schema` is the trace's unless another is given.

    Small batches are joined, to CHUNK rows or more: a batch takes about 12 kB however few rows it
    has, and each process of a real run sends one four times a second.
    """

    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._small = 0  # number of batches at the end that are still to be joined
        self.rows = 0

    def __call__(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._small += 1
        self.rows += batch.num_rows
        if self._small == _SMALL:
            small = pa.Table.from_batches(self._batches[-_SMALL:])
            self._batches[-_SMALL:] = small.combine_chunks().to_batches()
            self._small = int(small.num_rows < CHUNK)

    def close(self) -> None:
        pass

    def table(self) -> pa.Table:
        """Return all rows."""
        if not self._batches:
            return self._schema.empty_table()
        return pa.Table.from_batches(self._batches).cast(self._schema)


class NoSink:
    """Drops the rows of a run of which only the summary and the evaluations are wanted."""

    def __call__(self, batch: pa.RecordBatch) -> None:
        pass

    def close(self) -> None:
        pass

    def table(self) -> pa.Table:
        return SCHEMA.empty_table()


class ParquetSink:
    """Writes rows to a file, which gets its final name when it is complete.

    The first row that cannot be written raises RunError; all later ones are dropped, so that the
    run can still end in order.

    Args:
        what: names the rows in an error.
    """

    def __init__(
        self, path: Path, schema: pa.Schema = SCHEMA, what: str = "the trace of the run"
    ) -> None:
        self._schema, self._what = schema, what
        self._path = path
        self._partial: Path | None = None  # made with the writer
        self._writer: pq.ParquetWriter | None = None
        self._waiting = MemorySink(schema)
        self._failed = False

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self._failed:
            return
        try:
            self._add(batch)
        except OSError as error:
            self._failed = True
            raise RunError(f"cannot write {self._what}, {self._path}: {error}") from error

    def _add(self, batch: pa.RecordBatch) -> None:
        self._open()
        self._waiting(batch)  # small row groups cost more than their rows
        if self._waiting.rows >= CHUNK:
            self._write()

    def _write(self) -> None:
        if self._waiting.rows:
            table, self._waiting = self._waiting.table(), MemorySink(self._schema)
            self._open().write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        try:
            if not self._failed:
                self._write()
                self._open().close()
                if self._partial is not None:
                    self._partial.replace(self._path)
        finally:
            if self._partial is not None:
                self._partial.unlink(missing_ok=True)

    def table(self) -> pa.Table:
        return pq.read_table(regular(self._path))

    def _open(self) -> pq.ParquetWriter:
        # Opened only now, because the folder is made only when the run is known to be possible.
        if self._writer is None:
            self._partial = self._partial or partial_of(self._path)
            self._writer = pq.ParquetWriter(self._partial, self._schema, compression="zstd")
        return self._writer
