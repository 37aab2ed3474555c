"""Meetings in virtual time: they are over at the moment in which the last worker comes."""

from __future__ import annotations

from outpace.kernel import Future, Kernel
from outpace.support.units import Time
from outpace.sync.peers.meetings import Meetings


class SimulatedMeeting(Future[None]):
    """One worker's part in a meeting. Implements `Meeting`.

    Attributes:
        ended: the time when all workers had come; known then.
    """

    ended: Time

    async def over(self) -> None:
        await self


class SimulatedMeetings:
    """The meetings of a run."""

    def __init__(self, kernel: Kernel, workers: int) -> None:
        self._kernel, self._meetings = kernel, Meetings(range(workers))
        self._parts: dict[int, SimulatedMeeting] = {}  # by worker

    def come(self, worker: int, *, last: bool) -> SimulatedMeeting:
        """See `PeerContext.meet`."""
        missing = "the workers that are not at the meeting"
        part = self._parts[worker] = SimulatedMeeting(self._kernel, missing)
        self._end(self._meetings.come(worker, last=last))
        return part

    def leave(self, worker: int) -> None:
        """Wait no longer for this worker."""
        self._end(self._meetings.leave(worker))

    def _end(self, workers: list[int]) -> None:
        for worker in workers:
            self._parts[worker].ended = self._kernel.now
            self._parts[worker].set(None)
