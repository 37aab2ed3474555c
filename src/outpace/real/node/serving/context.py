"""The context of a server's program in a process of its own: it receives and sends messages."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from outpace.real.net.clock import RealClock
from outpace.real.net.inbox import Inbox, Turns
from outpace.real.net.translation import wire_reply
from outpace.real.net.transport import Listener
from outpace.real.node.serving.part import ServerPart
from outpace.real.node.serving.times import ServiceTimes, TimedShard
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.messages import Ack, Message, Pull, Push, Reply

_OF_SHARD: Final = Push | Pull  # most messages: nothing follows from them but answers


class ServedContext:
    """A `ServerContext`: gives the program what is in the inbox, and sends its answers.

    Args:
        totals: counts what is sent.
        processed: called before the program waits, unless it has processed a push or a pull.
    """

    def __init__(
        self,
        clock: RealClock,
        part: ServerPart,
        inbox: Inbox,
        turns: Turns,
        listener: Listener,
        times: ServiceTimes,
        totals: Totals,
        processed: Callable[[], None],
    ) -> None:
        self.refuse = inbox.refuse
        self._clock, self._part, self._inbox, self._turns = clock, part, inbox, turns
        self._listener, self._times, self._totals = listener, times, totals
        self._processed = processed
        self._last: Message | None = None  # that the program has received

    @property
    def now(self) -> Time:
        return self._clock.now

    @property
    def shard(self) -> TimedShard:
        return self._part.shard

    async def recv(self) -> Message:
        if not isinstance(self._last, _OF_SHARD):
            self._processed()
        self._last = message = await self._inbox.recv()
        return message

    async def recv_within(self, timeout_s: float) -> Message | None:
        if not isinstance(self._last, _OF_SHARD):
            self._processed()
        self._last = message = await self._inbox.recv_within(timeout_s)
        return message

    def send(self, to: str, *messages: Message) -> None:
        totals, times = self._totals, self._times
        for message in messages:
            totals.messages += 1
            if isinstance(message, Ack):
                self._listener.send(to, message)
                continue
            assert isinstance(message, Reply)
            assert message.parameters is not None
            block = message.parameters
            self._turns.answered(message.worker, message.iteration)
            totals.bytes_sent += block.nbytes
            began = monotonic_ns() if times.count else 0
            self._listener.send(to, wire_reply(message, block), block)
            if began:
                times.answered(message.worker, message.iteration, block.nbytes, began)
