"""This process's place in a run, if it has one: set by who started it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(slots=True)
class Place:
    """link, experiment and worker are those of `outpace.real`, once there is a run."""

    number: int = 0
    workers: int = 1
    link: Any = None
    experiment: Any = None
    worker: Any = None  # once `attach` was called
    looked: bool = False  # in the environment, already
    outside: bool = False  # started by somebody else than Outpace


CONNECT: Final = "OUTPACE_CONNECT"  # names the file in which a worker finds its run
HERE: Final = Place()
