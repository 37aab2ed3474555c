"""Says how a run is doing, from its folder alone.

Nothing here imports torch or pyarrow, so that the answer is there at once.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from outpace.errors import ConfigError
from outpace.experiment.resuming.command import resume_command
from outpace.record import folder as files
from outpace.record.checkpoints.committed import Damaged, committed, name_of, read_plain_index
from outpace.record.checkpoints.lock import holder
from outpace.record.status import Status, read_status
from outpace.support.processes.standing import is_stopped

State: TypeAlias = Literal["running", "complete", "failed", "interrupted", "killed"]
_LATE_S: Final = 5.0  # a status is written every second
_SEVERAL: Final = (files.COMPARISON, files.SWEEP, files.ADVICE)


class RunState(NamedTuple):
    """The state of a run, as its files show it.

    Attributes:
        state: killed means that it ended without a word.
        holder: the process that leads the run, in words, while it is running.
        error: why it has ended, if it failed or was interrupted.
        status: the last one that was written, of a run that is running or was killed. None if the
            process that leads the run has written none yet.
        late_s: seconds since the status should have been written; None if it is fresh, or the run
            is not running.
        stopped: the process that leads the run was stopped by a signal, such as Ctrl-Z.
        has_checkpoints: there are checkpoints, which may be damaged.
        checkpoint: name of the newest checkpoint that can be read; None if there is none.
        checkpoint_s: the time of the run at that checkpoint.
        resume: the command that resumes the run; None if it cannot, or is running.
        summary: the content of summary.json, unless the run is running. Of a run that was killed
            it is about the time until its last checkpoint.
    """

    folder: Path
    state: State
    holder: str | None
    error: str | None
    status: Status | None
    late_s: float | None
    stopped: bool
    has_checkpoints: bool
    checkpoint: str | None
    checkpoint_s: float | None
    resume: str | None
    summary: dict[str, Any] | None

    def to_plain(self) -> dict[str, Any]:
        """Return all of it as plain data, for JSON."""
        data = self._asdict()
        data["folder"] = str(self.folder)
        data["status"] = None if self.status is None else msgspec.to_builtins(self.status)
        return data


def run_state(folder: Path) -> RunState:
    """Return what is known of the run in this folder.

    Raises:
        ConfigError: if it is not the folder of a run, or cannot be read.
    """
    _require_run(folder)
    try:
        held = holder(folder)
    except OSError as error:
        raise ConfigError(f"cannot read the lock of {folder}: {error.strerror}") from error
    is_there = (folder / files.SUMMARY).exists()  # else the run was killed when it began
    summary = files.read_summary(folder) if is_there else {}
    state = _state(held, summary)
    status = read_status(folder) if state in ("running", "killed") else None
    if held is not None and status is not None and not _is_of(status, held):
        status = None  # of a process that was killed, and from which this one is resumed
    checkpoint = _newest(folder)
    return RunState(
        folder=folder,
        state=state,
        holder=held,
        error=None if state == "running" else summary.get("error"),
        status=status,
        late_s=_late_s(status) if state == "running" else None,
        stopped=held is not None and _is_stopped(held),
        has_checkpoints=bool(committed(folder)),
        checkpoint=None if checkpoint is None else checkpoint.name,
        checkpoint_s=None if checkpoint is None else checkpoint.time_s,
        resume=_resume(folder, state, summary, checkpoint, status),
        summary=summary if state != "running" else None,
    )


def _require_run(folder: Path) -> None:
    if (folder / files.CONFIG).exists():
        return
    if any((folder / name).exists() for name in _SEVERAL):
        raise ConfigError(f"{folder} holds several runs: name the folder of one of them")
    raise ConfigError(f"{folder} is not the folder of a run: it has no {files.CONFIG}")


def _state(held: str | None, summary: dict[str, Any]) -> State:
    if held is not None:
        return "running"
    status = summary.get("status")
    if status == "complete":
        return "complete"
    if status == "failed":
        return "failed"
    return "killed" if summary.get("error") in (None, files.KILLED) else "interrupted"


def _is_of(status: Status, held: str) -> bool:
    """True unless the process that holds the lock is known to be another one."""
    is_known = held.startswith("process ")
    return not is_known or held.startswith(f"process {status.process} on {status.host} ")


def _late_s(status: Status | None) -> float | None:
    if status is None:
        return None
    age_s = time.time() - status.at
    return age_s if age_s > _LATE_S else None


def _is_stopped(held: str) -> bool:
    """True if the process that holds the lock is known to be stopped by a signal."""
    found = re.match(r"process (\d+) on ", held)
    return found is not None and is_stopped(int(found[1]))


class _Newest(NamedTuple):
    """The newest checkpoint that can be read."""

    name: str
    time_s: float  # of the run


def _newest(folder: Path) -> _Newest | None:
    """Return the newest checkpoint whose index can be read; its files are not looked at."""
    for number in reversed(committed(folder)):
        name = name_of(number)
        try:
            return _Newest(name, read_plain_index(folder / name)["now"] / 1e9)
        except (ConfigError, Damaged, OSError, LookupError, TypeError):
            continue  # damaged, or removed meanwhile because it is old
    return None


def _resume(
    folder: Path,
    state: State,
    summary: dict[str, Any],
    checkpoint: _Newest | None,
    status: Status | None,
) -> str | None:
    if checkpoint is None or state in ("running", "complete"):
        return None
    is_simulated = "virtual_time_s" in summary or (
        status is not None and status.command == "simulate"
    )
    return resume_command("simulate" if is_simulated else "run", folder)
