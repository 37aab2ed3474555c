"""Meetings in virtual time: they are over at the moment in which the last worker comes."""

from __future__ import annotations

from outpace.engine.peers import PendingMeeting
from outpace.kernel import Future, Kernel
from outpace.sync.peers.meetings import Meetings


class SimulatedMeetings:
    """The meetings of a run."""

    def __init__(self, kernel: Kernel, workers: int) -> None:
        self._kernel, self._meetings = kernel, Meetings(range(workers))
        self._parts: dict[int, PendingMeeting] = {}  # by worker

    def come(self, worker: int, *, last: bool) -> PendingMeeting:
        """See `PeerContext.meet`."""
        all_here = Future[None](self._kernel, "the workers that are not at the meeting")
        part = self._parts[worker] = PendingMeeting(self._kernel.now, all_here)
        self._end(self._meetings.come(worker, last=last))
        return part

    def leave(self, worker: int) -> None:
        """Wait no longer for this worker."""
        self._end(self._meetings.leave(worker))

    def _end(self, workers: list[int]) -> None:
        for worker in workers:
            self._parts[worker].end(self._kernel.now)
