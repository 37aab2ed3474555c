"""Run times from the folder of a run, or from a file of recorded run times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outpace.errors import ConfigError
from outpace.predict.recorded.bytedance import is_bytedance, read_bytedance
from outpace.predict.recorded.files import read
from outpace.predict.recorded.table import RunTimes
from outpace.record.folder import CONFIG, TRACE
from outpace.record.run_times.run_folder import Of, read_run
from outpace.support.regular_files import named, regular

__all__ = ["Of", "Source", "read_source"]

_KNOWN: Final = "the folder of a run, .parquet, .csv, or a ByteDance trace (.npz, or its folder)"
_SAID: Final = {
    Of.SERVER: "from the start of an iteration until the gradient is at the last server",
    Of.COMPUTE: "computing alone",
}


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table of run times, and their definition in words."""

    path: Path
    times: RunTimes
    definition: str


def read_source(path: Path, of: Of | None = None, workers_per_node: int | None = None) -> Source:
    """Read run times from a run's folder, .parquet, .csv, or a ByteDance trace or its folder.

    Args:
        of: definition of the run times, for the folder of a run.
        workers_per_node: number of consecutive workers that share a node; overrides the number
            in the source.

    Raises:
        ConfigError: if there are no run times.
    """
    if not path.exists():
        raise ConfigError(f"there is no file or folder {path}")
    if path.is_dir():
        if (path / TRACE).exists() or (path / CONFIG).exists():
            times, found = read_run(path, of, workers_per_node)
            return Source(path, times, _SAID[found])
        path = _only_trace(path)
    try:
        regular(path, named)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if of is not None:
        raise ConfigError(f"{path}: --of is for the folder of a run, not for a file: leave it out")
    if path.suffix == ".npz" or is_bytedance(path):
        times = read_bytedance(path, workers_per_node)
        return Source(path, times, "computing, forward and backward, for a micro-batch")
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigError(f"{path}: run times cannot be read from such a file; give {_KNOWN}")
    return Source(path, read(path, workers_per_node), "as the file has them")


def _only_trace(folder: Path) -> Path:
    """Return the only ByteDance trace in a folder."""
    found = sorted(folder.glob("*.npz")) or sorted(
        path for path in folder.glob("*.parquet") if is_bytedance(path)
    )
    if not found:
        raise ConfigError(f"{folder}: there are no run times in it; give {_KNOWN}")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"{folder}: there are several traces in it; name one of them: {names}")
    return found[0]
