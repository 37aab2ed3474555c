"""Meetings in virtual time: they are over at the moment in which the last worker comes."""

from __future__ import annotations

from dataclasses import dataclass, field

from outpace.kernel import Future, Kernel
from outpace.support.units import Time
from outpace.sync.peers.meetings import Meetings


@dataclass(slots=True, eq=False)
class SimulatedMeeting:
    """One worker's part in a meeting. Implements `Meeting`."""

    _all_here: Future[None]
    ended: Time = field(init=False)

    async def over(self) -> None:
        await self._all_here

    def end(self, now: Time) -> None:
        """Note that all workers have come."""
        self.ended = now
        self._all_here.set(None)


class SimulatedMeetings:
    """The meetings of a run."""

    def __init__(self, kernel: Kernel, workers: int) -> None:
        self._kernel, self._meetings = kernel, Meetings(range(workers))
        self._parts: dict[int, SimulatedMeeting] = {}  # by worker

    def come(self, worker: int, *, last: bool) -> SimulatedMeeting:
        """See `PeerContext.meet`."""
        all_here: Future[None] = Future(self._kernel, "the workers that are not at the meeting")
        part = self._parts[worker] = SimulatedMeeting(all_here)
        self._end(self._meetings.come(worker, last=last))
        return part

    def leave(self, worker: int) -> None:
        """Wait no longer for this worker."""
        self._end(self._meetings.leave(worker))

    def _end(self, workers: list[int]) -> None:
        for worker in workers:
            self._parts[worker].end(self._kernel.now)
