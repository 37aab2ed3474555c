"""The place of this process in a run, if it has one, set by the process that started it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(slots=True)
class Place:
    """The place of this process in a run.

    `link`, `experiment` and `worker` are objects of `outpace.real`, once there is a run.
    """

    number: int = 0
    workers: int = 1
    link: Any = None
    experiment: Any = None
    worker: Any = None  # set by `attach`
    looked: bool = False  # True once the environment has been read
    outside: bool = False  # True if Outpace did not start this process


CONNECT: Final = "OUTPACE_CONNECT"  # the file in which a worker finds its run
HERE: Final = Place()
