"""The meetings of a worker; the coordinator ends them (`coordinator/without_servers.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outpace.kernel import Future, Kernel
from outpace.real.net.clock import RealClock
from outpace.real.net.peer_messages import EndMeeting, TakePart
from outpace.support.units import Time
from outpace.sync.messages import WireMessage


@dataclass(slots=True, eq=False)
class PendingMeeting:
    """This worker's part in a meeting. Implements `Meeting`."""

    came: Time
    all_here: Future[None]
    ended: Time = field(init=False)

    async def over(self) -> None:
        await self.all_here


class OwnMeetings:
    """The meetings of one worker. tell: sends a message to the coordinator."""

    def __init__(
        self, kernel: Kernel, clock: RealClock, tell: Callable[[WireMessage], None]
    ) -> None:
        self._kernel, self._clock, self._tell = kernel, clock, tell
        self._pending: PendingMeeting | None = None

    def come(self, *, last: bool) -> PendingMeeting:
        """See `PeerContext.meet`."""
        all_here: Future[None] = Future(self._kernel, "the workers that are not at the meeting")
        part = self._pending = PendingMeeting(self._clock.now, all_here)
        self._tell(TakePart("meeting", last=last))
        return part

    def take(self, message: EndMeeting) -> None:
        """Handle a message from the coordinator."""
        part, self._pending = self._pending, None
        if part is not None:
            now = self._clock.now  # another machine's clock may differ
            part.ended = min(max(part.came, message.ended), now)
            part.all_here.set(None)
