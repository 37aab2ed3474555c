"""status.json in the folder of a running run: how far the run is.

The process that leads the run writes the file about once a second, and removes it when the run has
ended. If that process is killed, the file remains and says how far the run was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from outpace.support.regular_files import read_text
from outpace.support.replacing import replace_file

STATUS: Final = "status.json"
EVERY_S: Final = 1.0
_MOST: Final = 1e18
Command: TypeAlias = Literal["run", "serve", "simulate"]
Phase: TypeAlias = Literal["starting", "training", "restarting", "ending"]


class ProcessStatus(msgspec.Struct, kw_only=True):
    """The status of one server or worker.

    Attributes:
        state: missing (it has not joined yet), joined, training, left (it has left the training),
            finished, lost, or returning (it was lost or has ended, and is started again).
        generation: 0 for the first process of this name, higher for one that has replaced it.
        iteration: number of iterations that a worker has completed; None for a server.
        quiet_s: seconds since its last new report; None if it has never reported.
        node: name of its node; None if all processes are on the machine that leads the run, or if
            the node is not known yet.
    """

    name: str
    state: str
    generation: int = 0
    iteration: int | None = None
    quiet_s: float | None = None
    node: str | None = None


class CheckpointStatus(msgspec.Struct, kw_only=True):
    """The checkpoints of a run.

    Attributes:
        number: number of the last checkpoint; 0: there is none yet.
        time_s: time of the run when it was taken.
        written: when it was complete, in seconds since the epoch; None if an earlier session of the
            run wrote it.
        failure: why the last checkpoint that was due is missing.
    """

    number: int = 0
    time_s: float | None = None
    written: float | None = None
    failure: str | None = None


class Status(msgspec.Struct, kw_only=True):
    """How far a run is.

    Attributes:
        process, host: id and host of the process that leads the run.
        since: when that process began to lead the run, in seconds since the epoch.
        at: when this status was written, in seconds since the epoch.
        waits_for: text that says what the run waits for; empty if it waits for nothing in
            particular.
        time_s: time of the run.
        share: completed share of the run, from 0 to 1, if the configuration says when the run ends.
        iterations: number of iterations that the slowest worker has completed.
        most_iterations: number of iterations that each worker must complete, if it is set.
        gradients: number of gradients applied so far; gradients_per_s: the rate over the last
            seconds.
        checkpoints: the checkpoints; None if the run takes none.
        restarts, updates_lost, resumed_from: see summary.json.
        elastic: text about the last change because nodes came or went, with its reason, and with
            "not done" and the cause if the run could not make the change; empty if there was none.
    """

    version: int = 1
    command: Command
    process: int
    host: str
    since: float
    at: float
    phase: Phase
    waits_for: str = ""
    time_s: float = 0.0
    share: float | None = None
    iterations: int = 0
    most_iterations: int | None = None
    gradients: int = 0
    gradients_per_s: float | None = None
    processes: list[ProcessStatus] = []
    checkpoints: CheckpointStatus | None = None
    restarts: int = 0
    updates_lost: int = 0
    resumed_from: str | None = None
    elastic: str = ""


def write_status(folder: Path, status: Status) -> None:
    """Write the file, completely or not at all. Raises OSError."""
    data = msgspec.json.encode(status)
    replace_file(folder / STATUS, lambda partial: partial.write_bytes(data))


def read_status(folder: Path) -> Status | None:
    """Return the last status of the run in this folder; None if there is no readable one."""
    try:
        found = msgspec.json.decode(read_text(folder / STATUS), type=Status)
        return found if _is_finite(msgspec.to_builtins(found)) else None
    except (OSError, ValueError, OverflowError, RecursionError):
        return None


def _is_finite(data: Any) -> bool:
    """True if all numbers in plain data are finite and of possible size."""
    if isinstance(data, dict | list):
        return all(map(_is_finite, data.values() if isinstance(data, dict) else data))
    return not isinstance(data, int | float) or abs(data) < _MOST


def remove_status(folder: Path) -> None:
    """Remove the file because the run has ended; its summary says how. Raises OSError."""
    (folder / STATUS).unlink(missing_ok=True)
