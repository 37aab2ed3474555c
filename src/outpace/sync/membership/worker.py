"""The state of one worker in the machine of `sync.membership.machine`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from outpace.support.units import Time
from outpace.sync.messages import worker_name


class Phase(Enum):
    """The part that a worker takes in the run."""

    HERE = auto()
    FENCING = auto()  # lost; the servers are told, or the old process has not ended
    STARTING = auto()
    LEAVING = auto()  # the run goes on without it; the servers are told
    GONE = auto()  # all servers know that the run goes on without it
    FINISHED = auto()
    ENDED = auto()  # as FINISHED; its process was lost, and the servers are told
    TOLD = auto()  # as ENDED, and all servers know it


AWAY: Final = (Phase.LEAVING, Phase.GONE)
SETTLED: Final = (Phase.HERE, Phase.GONE, Phase.FINISHED, Phase.TOLD)  # no answer is awaited


@dataclass(slots=True)
class Worker:
    """The facts that the machine keeps of one worker."""

    number: int
    phase: Phase = Phase.HERE
    generation: int = 0
    first: int = 0  # iteration of the present process
    done: int = 0  # iterations that some server has of the processes before
    kept: int = 0  # iteration at which what its script keeps was sent last
    has_ended: bool = False  # the process that was lost
    unconfirmed: set[str] = field(default_factory=set)
    reached: dict[str, tuple[int, int]] = field(default_factory=dict)  # watermark, clock by server
    deadline: Time | None = None
    deaths: list[Time] = field(default_factory=list)  # since it finished an iteration
    how: str = ""  # its process was lost
    counted: int = -1  # last iteration up to which those that some server lacks were counted

    @property
    def name(self) -> str:
        return worker_name(self.number)

    def has_at(self, server: str) -> int:
        """Return the last iteration that a server has, or has finished without this worker."""
        watermark, clock = self.reached[server]
        return max(watermark, clock - 1)
