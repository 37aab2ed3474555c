"""The place of this process in a run, if it has one, set by the process that started it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final


@dataclass(slots=True)
class Place:
    """The place of this process in a run.

    Attributes:
        attach: makes the worker of a model and its optimizer; None: there is no run.
        worker: what `attach` has made; an object of `outpace.real` or `outpace.simulation`.
    files: Path | None = None  # the folder for files of this worker's script, if the run has one
    """

    number: int = 0
    workers: int = 1
    attach: Callable[[Any, Any], Any] | None = None
    worker: Any = None
    files: Path | None = None  # the folder for files of this worker's script, if the run has one
    looked: bool = False  # True once the environment has been read


CONNECT: Final = "OUTPACE_CONNECT"  # the file in which a worker finds its run
HERE: Final = Place()
