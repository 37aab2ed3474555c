"""Makes the tables of a run that was killed from what it had written until then.

A run joins the segments of its records when it ends, and one that is killed does not. Reports,
exports and calibrations read the joined files.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import ConfigError, RunError
from outpace.record import folder as files
from outpace.record.checkpoints.committed import committed
from outpace.record.checkpoints.lock import RunLock, holder
from outpace.record.segments import join, segments_of


def gather(*folders: Path) -> list[str]:
    """Write the trace, the times and the metrics of runs that were killed into their folders.

    They reach to the last checkpoint, or a little further. A run that is resumed removes them.

    Returns:
        A line for each run that was killed; other folders are left as they are.

    Raises:
        ConfigError: if a file cannot be read or written.
    """
    return [line for folder in folders if (line := _gather(folder))]


def _gather(folder: Path) -> str:
    try:
        if not _is_without_results(folder) or holder(folder) is not None:
            return ""
        with RunLock(folder):
            return _gathered(folder) if _is_without_results(folder) else ""
    except (OSError, RunError, pa.ArrowException) as error:
        raise ConfigError(f"{folder}: cannot join what this run has recorded: {error}") from error


def _is_without_results(folder: Path) -> bool:
    """True if the run has checkpoints, and has not ended."""
    return bool(committed(folder)) and not (folder / files.TRACE).exists()


def _gathered(folder: Path) -> str:
    from outpace.record.checkpoints.folder import Checkpoints  # imports torch

    checkpoint = Checkpoints(folder).newest()
    if checkpoint is None:
        return ""
    files.write_table(folder / files.METRICS, checkpoint.metrics())
    for name in (files.TIMING, files.TRACE):  # the trace is last: with it, all is there
        path = folder / name
        named = [each for each in checkpoint.index.segments if Path(each).parent.name == path.stem]
        segments = segments_of(folder, named)
        if segments:
            join(segments, path, pq.read_schema(segments[0]), f"the rows of {path.stem}/")
    return f"the run in {folder} was killed: its records until {checkpoint.name} are shown"
