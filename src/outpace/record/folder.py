"""The folder of a run, which is readable at any time.

    config.yaml        the resolved configuration, which `outpace simulate` accepts unchanged
    summary.json       the results; `status` is partial until the run has ended
    metrics.parquet    one row per evaluation, or per point that a script logged
    trace.parquet      one row per event, see outpace.record.trace
    timing.parquet     times of messages and computations in a real run, see outpace.record.timing
    messages.parquet   one row per message, if the network logs messages
    model.safetensors  the parameters under the model's own names
    run-times.safetensors  a run-time model, if one was fitted in the run
    checkpoints/N      states from which the run can be resumed, see outpace.record.checkpoints
    trace/, timing/    the rows of a run with checkpoints, until the run is complete
    status.json        how far the run is, until it has ended, see outpace.record.status
    log.jsonl          the events of the run, see outpace.record.event_log
    run.lock           locked by the process that carries out the run
    report.html        the report
    explain.json       the causes that slow the run, if `outpace explain` was run
    files/worker-N     files that the script of worker N writes to outpace.output_dir(); in a
                       comparison also its output, as output.txt

The folder of a comparison holds a folder for each run, a report about all of them, and:

    comparison.json    each variant's time to the target and accuracy over its seeds

Each file is written under another name and renamed, so it is either complete or absent.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpace.errors import ConfigError
from outpace.support.regular_files import inside, read_text, regular
from outpace.support.replacing import replace_file, sync
from outpace.support.yaml_files import read_yaml, write_yaml

if TYPE_CHECKING:  # imported where they are used, because `outpace status` needs none of them
    import pyarrow as pa
    import torch
from typing import Annotated, TypeAlias

import msgspec

CONFIG: Final = "config.yaml"
SUMMARY: Final = "summary.json"
METRICS: Final = "metrics.parquet"
TRACE: Final = "trace.parquet"
TIMING: Final = "timing.parquet"
MESSAGES: Final = "messages.parquet"
MODEL: Final = "model.safetensors"
RUN_TIME_MODEL: Final = "run-times.safetensors"
LOG: Final = "log.jsonl"
REPORT: Final = "report.html"
EXPLANATION: Final = "explain.json"
CHECKPOINTS: Final = "checkpoints"
COMPARISON: Final = "comparison.json"
SWEEP: Final = "sweep.json"
BEST: Final = "best.yaml"  # the configuration of a sweep's best candidate
JOURNAL: Final = "study.journal"  # the study of a sweep, which exists from its beginning
ADVICE: Final = "advice.json"
SCRIPT_FILES: Final = "files"
SCRIPT_OUTPUT: Final = "output.txt"
# largest number of rows of a table; the trace of the longest runs has some millions
MOST_ROWS: Final = 50_000_000
# The error in the summary until the run has ended, because a killed process cannot write it.
KILLED: Final = "the run was killed, or its folder could not be written any more"


def require_new(path: Path, but: str = "") -> None:
    """Raise ConfigError unless the folder does not exist, or is empty except for this entry."""
    try:
        if path.exists() and (not path.is_dir() or any(p.name != but for p in path.iterdir())):
            there = "; to resume the run that is there: --resume {}"
            hint = there.format(shlex.quote(str(path))) if (path / CHECKPOINTS).is_dir() else ""
            raise ConfigError(
                f"{path} exists and is not an empty folder; choose another --out{hint}"
            )
    except OSError as error:
        raise ConfigError(f"cannot read the folder {path}: {error.strerror}") from error


@contextlib.contextmanager
def files_of_scripts(path: Path) -> Iterator[None]:
    """Allow scripts to write to their folders in this one, which the run has not made yet.

    If this block raises an error, the run does not begin, and the scripts' files are removed.

    Raises:
        ConfigError: if the folder is not empty.
    """
    require_new(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        shutil.rmtree(path / SCRIPT_FILES, ignore_errors=True)
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def new_folder(path: Path, but: str = "") -> Path:
    """Make the folder. Raises ConfigError if it is not empty, except for an entry of this name."""
    require_new(path, but)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {path}: {error.strerror}") from error
    return path


@contextlib.contextmanager
def free_folder(parent: Path, name: str) -> Iterator[Path]:
    """Make `parent/name`, or the first of `name-2`, `name-3`, ... that does not exist.

    Runs that start at the same time get different folders. A folder that is still empty
    afterwards is removed. Raises ConfigError if no folder can be made.
    """
    path, number = parent / name, 1
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
                path = parent / f"{name}-{number}"
    except OSError as error:
        raise ConfigError(f"cannot make the folder {path}: {error.strerror}") from error
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):  # the folder exists and is not empty
            path.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write the text, either completely or not at all."""
    replace_file(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    write_text(folder / CONFIG, write_yaml(dict(config)))


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write the summary, and wait until it is on the disk: a run without it cannot be resumed."""
    text = json.dumps(summary, indent=2, allow_nan=False) + "\n"

    def write(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8")
        sync(partial)

    replace_file(folder / SUMMARY, write)


def correct_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Overwrite the present summary, because a full disk has no room for another file."""
    text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
    with open(folder / SUMMARY, "r+", encoding="utf-8", opener=inside) as file:
        file.write(text)
        file.truncate()


def write_json(path: Path, data: Any) -> None:
    """Write strict JSON. Raises ValueError if a number is NaN or infinite."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def is_segment(name: str) -> bool:
    """True if this can be the name of a file with rows of a run, below the run's folder."""
    return re.fullmatch(r"(trace|timing)/[0-9]{6,18}\.parquet", name) is not None


def table_file(path: Path) -> Path:
    """Return the path of a file with a table. Raises OSError if it cannot be read.

    A small file may contain so many equal rows that reading them would take forever.
    """
    import pyarrow.parquet as pq

    rows = pq.read_metadata(regular(path)).num_rows
    if rows > MOST_ROWS:
        words = f"it has {rows:,} rows, and files with up to {MOST_ROWS:,} rows are read"
        raise OSError(errno.EFBIG, words, str(path))
    return path


def read_table(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(table_file(path), partitioning=None)


def write_table(path: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    replace_file(path, lambda partial: pq.write_table(table, partial))


def write_model(folder: Path, parameters: dict[str, torch.Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        replace_file(folder / MODEL, lambda partial: save_file(parameters, str(partial)))
    except SafetensorError as error:  # of a full disk, among others
        raise OSError(f"{MODEL}: {error}") from error


def read_summary(folder: Path, *, lenient: bool = False) -> dict[str, Any]:
    """Read the summary.

    Args:
        lenient: True: do not check the values, which may then have any type.

    Raises:
        ConfigError: if this is not the folder of a run, or a value has another type than Outpace
            writes; it names the file and the key.
    """
    try:
        summary = json.loads(read_text(folder / SUMMARY))
        if not isinstance(summary, dict):
            raise ValueError("it is not a mapping")
    except (FileNotFoundError, NotADirectoryError):
        why = "there is no such folder"
        if folder.is_dir():
            why = f"it has no {SUMMARY}; of a comparison or sweep, name the folder of one run"
        raise ConfigError(f"{folder} is not the folder of a run: {why}") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {folder / SUMMARY}: {reason}") from error
    try:
        if not lenient:
            msgspec.convert(summary, _Summary)
    except (msgspec.ValidationError, OverflowError) as error:
        raise ConfigError(f"{folder / SUMMARY} is damaged: {error}") from error
    return summary


def trait(summary: Mapping[str, Any], name: str) -> bool:
    """Return a trait of the strategy from a summary: whether it is in `lockstep`, has `exchanges`.

    Raises ConfigError if the summary does not have the trait, because an earlier version wrote it.
    """
    found = summary.get(name)
    if not isinstance(found, bool):
        raise ConfigError(f"{SUMMARY} has no `{name}`: an earlier version wrote it; run it again")
    return found


def read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration. Raises ConfigError if it cannot be read."""
    return read_yaml(folder / CONFIG, inside)


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Value: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class _Best(msgspec.Struct):
    value: _Value
    time_s: _Seconds


class _Summary(msgspec.Struct):
    """The types of the values of a summary; missing values are not used."""

    status: str | None = None
    error: str | None = None
    virtual_time_s: _Seconds | None = None
    wall_time_s: _Seconds | None = None
    iterations: list[_Count] | None = None
    gradients_applied: _Count | None = None
    restarts: _Count | None = None
    updates_lost: int | None = None
    scalings: list[tuple[_Count, _Count]] | None = None
    resumed_from: str | None = None
    best: dict[str, _Best | None] | None = None
    servers: list[dict[str, Any]] | None = None
    nodes: dict[str, str] | None = None
    overlap_fraction: _Value | None = None
    scheduler_shard: _Count | None = None
    lockstep: bool | None = None
    exchanges: bool | None = None
