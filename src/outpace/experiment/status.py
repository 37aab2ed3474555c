"""Says how far a run is, from its folder alone.

This does not import torch or pyarrow, so that the answer comes at once.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from outpace.errors import ConfigError
from outpace.record import folder as files
from outpace.record.checkpoints.committed import Damaged, Head, committed, name_of, read_index
from outpace.record.checkpoints.lock import holder
from outpace.record.status import Status, read_status
from outpace.support.place import ELSEWHERE
from outpace.support.processes.standing import is_stopped

Began: TypeAlias = Literal["run", "simulate"]
State: TypeAlias = Literal["running", "complete", "failed", "interrupted", "killed"]
_LATE_S: Final = 5.0  # a status is written every second


class RunState(NamedTuple):
    """The state of a run according to its files.

    Attributes:
        state: state of the run; killed means that it ended without writing its end.
        holder: text about the process that leads the run, while it is running.
        error: why the run has ended, if it failed or was interrupted.
        status: the last status that was written, if the run is running or was killed. None if the
            process that leads the run has written none yet.
        late_s: seconds since the status should have been written; None if it is fresh, or the run
            is not running.
        stopped: True if the process that leads the run was stopped by a signal, such as Ctrl-Z.
        has_checkpoints: True if there are checkpoints, which may be damaged.
        checkpoint: name of the newest checkpoint that can be read; None if there is none.
        checkpoint_s: the time of the run at that checkpoint.
        resume: the command that resumes the run; None if the run cannot be resumed, or is running.
        summary: the content of summary.json, unless the run is running. If the run was killed, it
            covers the time until its last checkpoint.
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
        """Return all fields as plain data, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self._asdict() | {"folder": str(self.folder)})
        return plain


def run_state(folder: Path) -> RunState:
    """Return the state of the run in this folder.

    Raises:
        ConfigError: if it is not the folder of a run, or cannot be read.
    """
    if not (folder / files.CONFIG).exists():
        raise ConfigError(
            f"{folder} is not the folder of a run: it has no {files.CONFIG}; of a comparison or "
            "sweep, name the folder of one run"
        )
    try:
        held = holder(folder)
    except OSError as error:
        raise ConfigError(f"cannot read the lock of {folder}: {error.strerror}") from error
    is_there = (folder / files.SUMMARY).exists()  # otherwise the run was killed when it began
    summary = files.read_summary(folder) if is_there else {}
    state, is_running = _state(held, summary), held is not None
    status = read_status(folder) if state in ("running", "killed") else None
    process = re.match(r"process (\d+) on (\S+) ", held or "")
    if status is not None and process and process[1] != str(status.process):
        status = None  # status of a process that was killed, and whose run is resumed now
    late_s = time.time() - status.at if is_running and status is not None else 0.0
    name, at_s = _newest_checkpoint(folder)
    resume = None
    if name is not None and state not in ("running", "complete"):
        is_simulated = status is not None and status.command == "simulate"
        resume = resume_command("simulate" if is_simulated else began_with(summary), folder)
    return RunState(
        folder=folder,
        state=state,
        holder=held,
        error=None if is_running else summary.get("error"),
        status=status,
        late_s=late_s if late_s > _LATE_S else None,
        stopped=process is not None and is_stopped(int(process[1])),
        has_checkpoints=bool(committed(folder)),
        checkpoint=name,
        checkpoint_s=at_s,
        resume=resume,
        summary=None if is_running else summary,
    )


def _state(held: str | None, summary: dict[str, Any]) -> State:
    if held is not None:
        return "running"
    if (status := summary.get("status")) in ("complete", "failed"):
        return "complete" if status == "complete" else "failed"
    return "killed" if summary.get("error") in (None, files.KILLED) else "interrupted"


def _newest_checkpoint(folder: Path) -> tuple[str, float] | tuple[None, None]:
    """Return the newest checkpoint with a readable index, and the time of the run at it (s)."""
    for number in reversed(committed(folder)):
        try:
            return name_of(number), read_index(folder / name_of(number), Head).now / 1e9
        except (ConfigError, Damaged):
            continue  # the checkpoint is damaged, or was removed because it is old
    return None, None


def resume_command(command: Began, folder: Path) -> str:
    """Return the command that resumes a run, quoted for a shell. folder: folder of the run.

    The command for `outpace serve` has FILE in place of the file for the workers.
    """
    where = shlex.quote(str(folder))
    try:
        task = files.read_config(folder).get("task")
    except ConfigError:
        task = None
    if command == "run" and isinstance(task, dict) and task.get("path") == ELSEWHERE:
        return f"outpace serve --resume {where} --connect FILE"
    return f"outpace {command} --resume {where}"


def began_with(summary: Mapping[str, Any]) -> Began:
    """Return the command that began the run with this summary."""
    return "simulate" if "virtual_time_s" in summary else "run"
