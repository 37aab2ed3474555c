"""Rows of a run in segments, of which those before a checkpoint outlive the process."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outpace.errors import RunError
from outpace.record.folder import is_segment, table_file
from outpace.record.sinks import ParquetSink
from outpace.record.trace import CHUNK, SCHEMA
from outpace.support.regular_files import regular, require_no_link
from outpace.support.replacing import PARTIAL, replace_file, sync
from outpace.support.units import Time

_MOST_SMALL: Final = 64  # small segments before they are joined
_OF_TIMES: Final = "_ns"  # the end of the names of columns that are times


def segments_of(run: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of segments in the folder of a run. Raises ConfigError and OSError."""
    paths = [run / name for name in names]
    for folder in {path.parent for path in paths}:
        require_no_link(folder)
    return [regular(path) for path in paths]


def join(segments: Sequence[Path], path: Path, schema: pa.Schema, what: str) -> None:
    """Write the rows of these files to one file; what: names the rows in an error.

    Raises RunError and OSError.
    """
    whole = ParquetSink(path, schema, what)
    for segment in segments:
        for batch in _rows(segment, schema):
            whole(batch)
    whole.close()


def _rows(segment: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(table_file(segment)) as file:
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group).cast(schema).to_batches()


class SegmentedSink:
    """Writes rows to `trace/000001.parquet` and so on, and joins them to `trace.parquet`.

    A file of the Parquet format can be read only when it is complete. `cut` completes the present
    segment, so that a checkpoint can name it. Of many small segments it makes one; checkpoints that
    were written before name the small ones, which stay until `tidy`. Errors are those of
    `ParquetSink`. No file is touched before the first row, or `go_back`.

    Args:
        path: the file with all rows, in the folder of the run.
        what: names the rows in an error.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema = SCHEMA,
        what: str = "the trace of the run",
    ) -> None:
        self._path, self._schema, self._what = path, schema, what
        self._folder = path.with_suffix("")
        self._names: list[str] = []
        self._small = 0  # number of segments at the end that have few rows
        self._spare: list[Path] = []  # that older checkpoints may name
        self._segment: ParquetSink | None = None

    def __call__(self, batch: pa.RecordBatch) -> None:
        if self._segment is None:
            self._folder.mkdir(exist_ok=True)
            self._segment = ParquetSink(self._place, self._schema, self._what)
        self._segment(batch)

    def go_back(self, kept: Sequence[str]) -> None:
        """Remove all segments after these, and continue after them. Raises OSError.

        kept: those of the checkpoint from which the run is resumed, as in its index, which may name
            segments of other records too.
        """
        self.cut()
        self._names = [name for name in kept if Path(name).parent.name == self._folder.name]
        self._small, self._spare = 0, []
        require_no_link(self._folder)
        present = self._place
        for other in self._folder.glob("*") if self._folder.is_dir() else ():
            name = self._name(other)
            if name in self._names:
                continue
            if is_segment(name) and int(other.stem) < int(present.stem):
                self._spare.append(other)
            elif is_segment(name) or other.suffix == PARTIAL:
                other.unlink()

    def cut(self) -> tuple[str, ...]:
        """Complete the present segment and wait until it is on the disk.

        Returns:
            The names of all segments, below the folder of the run.

        Raises:
            RunError: if it cannot be written, so that rows are lost.
            OSError: if it cannot be made durable.
        """
        if self._segment is not None:
            path = self._place
            segment, self._segment = self._segment, None
            try:
                segment.close()
            except OSError as error:
                raise RunError(f"cannot write {self._what}, {path}: {error}") from error
            if path.exists():  # else a row could not be written before
                sync(path)
                sync(self._folder)
                self._names.append(self._name(path))
                rows = pq.read_metadata(path).num_rows
                self._small = self._small + 1 if rows < CHUNK else 0
                if self._small == _MOST_SMALL:
                    self._join_small()
        return tuple(self._names)

    def _join_small(self) -> None:
        """Make one segment of the small ones at the end; they stay as they are if it fails."""
        path, small = self._place, self._names[-self._small :]
        with contextlib.suppress(OSError, RunError):
            self._join(small, path)
            sync(path)
            sync(self._folder)
            self._names[-self._small :] = [self._name(path)]
            self._spare += [self._path.parent / name for name in small]
            self._small = int(pq.read_metadata(path).num_rows < CHUNK)

    @property
    def has_spare(self) -> bool:
        """True if there are segments that no checkpoint may name any more."""
        return bool(self._spare)

    def tidy(self, named: Collection[str]) -> None:
        """Remove the segments that were joined, except those that checkpoints name."""
        spare, self._spare = self._spare, []
        for path in spare:
            if self._name(path) in named:
                self._spare.append(path)
            else:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Join the segments, which stay, so that the run can be resumed.

        Raises RunError and OSError.
        """
        self._join(self.cut(), self._path)

    def remove_segments(self) -> None:
        """Remove the segments, after `close`, of a run that is complete."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def table(self) -> pa.Table:
        return pq.read_table(regular(self._path))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the segments that are complete. Raises OSError."""
        return self._rows_of(self._names)

    def _rows_of(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for name in names:
            yield from _rows(self._path.parent / name, self._schema)

    def drop_after(self, last: Time) -> None:
        """Remove rows of the segments that have a time (ns) after `last`. Raises OSError.

        Processes of a real run report their rows a little later, so a segment may have some that
        belong to the time after the checkpoint.
        """
        for name in self._names:
            path = self._path.parent / name
            rows = pq.read_table(table_file(path))
            kept = rows
            for column in self._schema.names:
                if column.endswith(_OF_TIMES):
                    times = pc.fill_null(kept[column], last)
                    kept = kept.filter(pc.less_equal(times, last))
            if kept.num_rows < rows.num_rows:
                replace_file(path, partial(pq.write_table, kept, compression="zstd"))
                sync(path)

    def _join(self, names: Sequence[str], path: Path) -> None:
        join([self._path.parent / name for name in names], path, self._schema, self._what)

    @property
    def _place(self) -> Path:
        """The file of the present segment."""
        last = max((int(Path(name).stem) for name in self._names), default=0)
        return self._folder / f"{last + 1:06d}.parquet"

    def _name(self, path: Path) -> str:
        return f"{self._folder.name}/{path.name}"
