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
DONE: Final = (Phase.FINISHED, Phase.ENDED, Phase.TOLD)
OUT: Final = (Phase.GONE, Phase.FINISHED, Phase.TOLD)  # and the losses so far are counted


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
    joins: bool = False  # True if it has joined, and no process has begun since
    unconfirmed: set[str] = field(default_factory=set)
    reached: dict[str, tuple[int, int]] = field(default_factory=dict)  # watermark, clock by server
    deadline: Time | None = None
    deaths: list[Time] = field(default_factory=list)  # since it finished an iteration
    how: str = ""  # its process was lost
    pushed: int = -1  # last iteration of one that takes no more part, as far as it is known
    # Iterations that some server lacks: disjoint ranges of the first and the one after the last.
    lost: list[tuple[int, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return worker_name(self.number)

    def has_at(self, server: str) -> int:
        """Return the last iteration that a server has, or has finished without this worker."""
        watermark, clock = self.reached[server]
        return max(watermark, clock - 1)

    def loses(self, after: int, last: int) -> int:
        """Count the iterations after one until another as lost; return how many are new."""
        low, high = after + 1, last + 1
        if high <= low:
            return 0
        new = high - low - sum(max(0, min(high, b) - max(low, a)) for a, b in self.lost)
        joined = [(a, b) for a, b in self.lost if a <= high and b >= low]
        whole = min([low, *(a for a, _ in joined)]), max([high, *(b for _, b in joined)])
        self.lost = [each for each in self.lost if each not in joined] + [whole]
        return new

    def repeats(self, first: int) -> int:
        """Count the iterations from this one on as lost no more; return how many were."""
        count = sum(max(0, high - max(low, first)) for low, high in self.lost)
        self.lost = [(low, min(high, first)) for low, high in self.lost if low < first]
        return count
