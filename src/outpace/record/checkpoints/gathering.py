"""Makes the tables of a killed run from the files that it has written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import ConfigError, RunError
from outpace.record import folder as files
from outpace.record.checkpoints.committed import committed
from outpace.record.checkpoints.lock import RunLock, holder
from outpace.record.tables import join_segments, segments_of


def gather(*folders: Path) -> list[str]:
    """Write the trace, the times and the metrics of killed runs into their folders.

    The tables end at the last checkpoint, or a little later. A run joins the segments of its tables
    when it ends; reports, exports and calibrations read the joined files. A run that is resumed
    removes these files.

    Returns:
        A line for each killed run; other folders are not changed.

    Raises:
        ConfigError: if a file cannot be read or written.
    """
    return [line for folder in folders if (line := _gather(folder))]


def _gather(folder: Path) -> str:
    try:
        if not committed(folder) or (folder / files.TRACE).exists() or holder(folder) is not None:
            return ""
        from outpace.record.checkpoints.folder import Checkpoints  # imports torch: two seconds

        with RunLock(folder):
            checkpoint = Checkpoints(folder).newest()
            if checkpoint is None or (folder / files.TRACE).exists():
                return ""
            files.write_table(folder / files.METRICS, checkpoint.metrics())
            # the trace is written last: if it exists, all tables exist
            for name in (files.TIMING, files.TRACE):
                path = folder / name
                named = [n for n in checkpoint.index.segments if Path(n).parent.name == path.stem]
                if segments := segments_of(folder, named):
                    join_segments(segments, path, pq.read_schema(segments[0]))
    except (OSError, RunError, pa.ArrowException) as error:
        raise ConfigError(f"{folder}: cannot join what this run has recorded: {error}") from error
    return f"the run in {folder} was killed: its records until {checkpoint.name} are shown"
