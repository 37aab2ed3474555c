"""The tables of a run: rows of integers, kept in memory or written to a Parquet file.

A Parquet file can be read only when it is complete. So a run with checkpoints writes its rows in
segments, `trace/000001.parquet` and so on: a checkpoint completes the present segment, and names
all segments until then. The segments are joined when the run ends, and kept until the run is
complete, so that it can be resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outpace.errors import RunError
from outpace.record.folder import is_segment, table_file
from outpace.support.regular_files import regular, require_no_link
from outpace.support.replacing import PARTIAL, partial_of, replace_file, sync
from outpace.support.units import Time

NONE: Final = -(2**63)  # a null among the integers
CHUNK: Final = 1 << 15  # number of rows of a row group
Table: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class RunTable:
    """The rows of one table of a run.

    Args:
        schema: schema of the table. Columns of texts are dictionaries.
        words: texts of these columns; an integer in a row is the index of a text.
        path: path of the file; None: the rows are kept in memory. The file is made with the first
            row group, when the folder of the run exists.
        in_segments: True if the run takes checkpoints.
    """

    def __init__(
        self,
        schema: pa.Schema,
        words: Mapping[str, Sequence[str]],
        path: Path | None = None,
        *,
        in_segments: bool = False,
    ) -> None:
        self._schema, self._words = schema, words
        self._path, self._in_segments = path, in_segments
        self._segments: list[str] = []  # complete segments, below the folder of the run
        self._waiting: list[Table] = []  # rows that are in no batch yet
        self._rows = 0  # number of these rows
        self._batches: list[pa.RecordBatch] = []  # batches of a table in memory
        self._writer: pq.ParquetWriter | None = None
        self._partial: Path | None = None  # the file that the writer writes
        self._has_failed = False

    def add(self, rows: Table) -> None:
        """Add rows of all columns, NONE for null.

        Raises:
            RunError: the first time that rows cannot be written. Later rows are dropped, so that
                the run can end in order.
        """
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= CHUNK:
            self._write()

    def cut(self) -> tuple[str, ...]:
        """Complete the present segment, wait until it is on the disk, and return all segments.

        Raises:
            RunError: if it cannot be written, so that rows are lost.
            OSError: if it cannot be written to the disk.
        """
        path = self._place
        if self._rows or self._writer is not None:
            self._complete()
            if path.exists():  # otherwise an earlier row could not be written
                sync(path)
                sync(path.parent)
                self._segments.append(f"{path.parent.name}/{path.name}")
        return tuple(self._segments)

    def go_back(self, named: Sequence[str], last: Time) -> None:
        """Reset the table to a checkpoint.

        Processes of a real run report their rows with a delay, so a segment may have rows with
        times after the checkpoint; these are removed.

        Args:
            named: the segments of the checkpoint; some may belong to other tables.
            last: the time of the checkpoint (ns).

        Raises:
            OSError: if a file cannot be read or removed.
        """
        assert self._path is not None
        self._drop_present()
        folder = self._path.with_suffix("")
        require_no_link(folder)
        self._segments = [name for name in named if Path(name).parent.name == folder.name]
        for other in folder.glob("*"):
            name = f"{folder.name}/{other.name}"
            if name not in self._segments and (is_segment(name) or other.suffix == PARTIAL):
                other.unlink()
        for path in self._paths:
            rows = pq.read_table(table_file(path))
            is_kept = pa.repeat(True, len(rows))
            for times in (rows[name] for name in rows.column_names if name.endswith("_ns")):
                is_kept = pc.and_(is_kept, pc.fill_null(pc.less_equal(times, last), True))
            if not pc.all(is_kept).as_py():
                kept = rows.filter(is_kept)
                replace_file(path, partial(pq.write_table, kept, compression="zstd"))
                sync(path)

    def close(self) -> None:
        """Complete the file. Raises OSError, and RunError like `cut`."""
        if self._path is None:
            return
        if self._in_segments:
            self.cut()
            join_segments(self._paths, self._path, self._schema)
        else:
            self._complete()

    def remove_segments(self) -> None:
        """Remove the segments of a complete run, after `close`."""
        if self._path is not None:
            shutil.rmtree(self._path.with_suffix(""), ignore_errors=True)

    def table(self) -> pa.Table:
        """Return all rows; if the table has a file, only after `close`."""
        if self._path is not None:
            return pq.read_table(regular(self._path))
        self._write()
        return pa.Table.from_batches(self._batches, self._schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the complete segments. Raises OSError."""
        return _batches(self._paths, self._schema)

    @property
    def _paths(self) -> list[Path]:
        """The files of the complete segments."""
        assert self._path is not None
        return [self._path.parent / name for name in self._segments]

    @property
    def _place(self) -> Path:
        """The file that is written at present."""
        assert self._path is not None
        if not self._in_segments:
            return self._path
        last = max((int(Path(name).stem) for name in self._segments), default=0)
        return self._path.with_suffix("") / f"{last + 1:06d}.parquet"

    def _write(self) -> None:
        """Write the waiting rows as a batch. Raises RunError the first time it fails."""
        batches = []
        if self._rows:
            rows, self._waiting, self._rows = np.concatenate(self._waiting), [], 0
            batches = [_batch_of(rows, self._schema, self._words)]
        if self._path is None:
            self._batches += batches
            return
        with self._failing():
            if self._writer is None and not self._has_failed:
                self._place.parent.mkdir(exist_ok=True)
                self._partial = partial_of(self._place)
                self._writer = pq.ParquetWriter(self._partial, self._schema, compression="zstd")
            for batch in batches:
                if self._writer is not None:
                    self._writer.write_batch(batch)

    def _complete(self) -> None:
        """Write the rest of the present file and give it its final name. Raises RunError."""
        self._write()
        with self._failing():
            if self._writer is not None and self._partial is not None:
                self._writer.close()
                self._partial.replace(self._place)
        self._drop_present()

    def _drop_present(self) -> None:
        """Forget the rows that are not in a complete file."""
        self._waiting, self._rows, self._writer = [], 0, None
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)
        self._partial = None

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Drop the rows, and all later ones, if writing fails in this block. Raises RunError."""
        try:
            yield
        except OSError as error:
            self._has_failed = True
            self._drop_present()
            path = self._path
            raise RunError(f"cannot write the records of the run, {path}: {error}") from error


def segments_of(run: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of segments in the folder of a run. Raises ConfigError and OSError."""
    paths = [run / name for name in names]
    for folder in {path.parent for path in paths}:
        require_no_link(folder)
    return [regular(path) for path in paths]


def join_segments(segments: Sequence[Path], path: Path, schema: pa.Schema) -> None:
    """Write the rows of these files to one file. Raises OSError."""

    def write(partial: Path) -> None:
        with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            waiting: list[pa.RecordBatch] = []
            for batch in _batches(segments, schema):
                waiting.append(batch)
                if sum(map(len, waiting)) >= CHUNK:  # small row groups cost more than their rows
                    writer.write_table(pa.Table.from_batches(waiting, schema))
                    waiting = []
            writer.write_table(pa.Table.from_batches(waiting, schema))

    replace_file(path, write)


def _batches(segments: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for segment in segments:
        with pq.ParquetFile(table_file(segment)) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).cast(schema).to_batches()


def _batch_of(rows: Table, schema: pa.Schema, words: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """Return a batch of rows of integers, in which NONE stands for null."""
    columns = rows.T.copy()  # so that each column is contiguous in memory
    nulls = columns == NONE
    columns[nulls] = 0
    found = []
    for entry, numbers, null in zip(schema, columns, nulls, strict=True):
        known = words.get(entry.name)
        column = pa.array(numbers, mask=null).cast(entry.type if known is None else pa.int8())
        if known is not None:
            column = pa.DictionaryArray.from_arrays(column, pa.array(known))
        found.append(column)
    return pa.RecordBatch.from_arrays(found, schema=schema)


def integers_of(batch: pa.RecordBatch, words: Mapping[str, Sequence[str]]) -> Table:
    """Return the rows of integers from which a batch was made."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in words:
            column = pc.index_in(column.cast(pa.string()), value_set=pa.array(words[name]))
        columns.append(pc.fill_null(column.cast(pa.int64()), NONE).to_numpy(zero_copy_only=False))
    return np.stack(columns, axis=1)
