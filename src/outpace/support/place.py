"""The place of this process in a run, if it has one, set by the process that started it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final


@dataclass(slots=True)
class Place:
    """The place of this process in a run.

    `link` and `experiment` are objects of `outpace.real`, once there is a run. `worker` carries out
    what the script asks for: start, step, log, untimed, abortable, leave.
    """

    number: int = 0
    workers: int = 1
    link: Any = None
    experiment: Any = None
    worker: Any = None  # set by `attach`
    files: Path | None = None  # the folder for files of this worker's script, if the run has one
    looked: bool = False  # True once the environment has been read
    outside: bool = False  # True if Outpace did not start this process


CONNECT: Final = "OUTPACE_CONNECT"  # the file in which a worker finds its run
HERE: Final = Place()
