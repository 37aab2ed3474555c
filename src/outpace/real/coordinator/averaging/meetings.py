"""Ends the meetings of the workers: each when all that are still in the run have come."""

from __future__ import annotations

from collections.abc import Iterable

from outpace.errors import RunError
from outpace.kernel import Alarm, Kernel
from outpace.real.coordinator.averaging.membership import Tell
from outpace.real.net.peer_messages import EndMeeting, TakePart
from outpace.support.units import nanoseconds
from outpace.sync.messages import Leave, WireMessage
from outpace.sync.peers.meetings import Meetings


class HostedMeetings:
    """The meetings of a run.

    Args:
        timeout_s: seconds in which all must come after the first one.
        tell: sends a message to a worker.
    """

    def __init__(
        self, kernel: Kernel, workers: Iterable[str], timeout_s: float, tell: Tell
    ) -> None:
        self._kernel, self._timeout_s, self._tell = kernel, timeout_s, tell
        self._meetings = Meetings(workers)
        self._alarm: Alarm | None = None  # while a worker waits

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a worker; False if it is not about meetings alone."""
        if isinstance(message, Leave):
            self.lose(name)
        if not (isinstance(message, TakePart) and message.what == "meeting"):
            return False
        self._end(self._meetings.come(name, last=message.last))
        return True

    def lose(self, name: str) -> None:
        """This worker has left or is gone."""
        self._end(self._meetings.leave(name))

    def _end(self, workers: list[str]) -> None:
        for name in workers:
            self._tell(name, EndMeeting(self._kernel.now))
        if self._alarm is not None and (workers or not self._meetings.absent):
            self._kernel.call_off(self._alarm)
            self._alarm = None
        if self._alarm is None and self._meetings.absent:
            due = self._kernel.now + nanoseconds(self._timeout_s)
            self._alarm = self._kernel.set_alarm(due, self._require_all)

    def _require_all(self) -> None:
        self._alarm = None
        raise RunError(
            f"{', '.join(self._meetings.absent)} did not come to the end of an iteration within "
            f"{self._timeout_s:g} s (sync.timeout_s) of the others, which wait there"
        )
