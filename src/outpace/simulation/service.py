"""What a server's work costs in virtual time: so much for each push and each pull.

The server does one thing at a time, in the order of arrival; its mailbox is the queue.
A push or pull has its effect at the end of its own time. A pull that is held costs its
time twice: when it is judged, and when it is taken out of the buffer and executed. Several
that are released together are executed one after the other, and each reply leaves when
its own turn is over; what they carry is what the parameters were at their release, since
the server does nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from outpace.cluster import ServiceLaw
from outpace.kernel import Kernel, Mailbox
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message, Pull, Push, Reply


class Service:
    """One server's time. What the n-th push or pull costs depends on seed, server and n alone."""

    def __init__(
        self,
        kernel: Kernel,
        mailbox: Mailbox[Message],
        seed: int,
        server: int,
        push_time: ServiceLaw | None,
        pull_time: ServiceLaw | None,
    ) -> None:
        self._kernel, self._mailbox = kernel, mailbox
        self._push = _Costs(push_time, seed, "push time", server)
        self._pull = _Costs(pull_time, seed, "pull time", server)
        self._free_at: Time = 0
        self._current: Message | None = None

    async def next(self) -> Message:
        """The next message, when its time is over."""
        await self._until_free()
        return await self._served(await self._mailbox.get())

    async def next_within(self, timeout_s: float) -> Message | None:
        """The same if it is there in that time: it may be over later, and so may other work."""
        until = self._kernel.now + nanoseconds(timeout_s)
        await self._until_free()
        rest_s = seconds(max(0, until - self._kernel.now))
        message = await self._mailbox.get_within(rest_s)
        if message is None:
            self._current = None  # what is released now was held
            return None
        return await self._served(message)

    def answer(self, reply: Reply, send: Callable[[Reply], None]) -> None:
        """Call `send(reply)` when this reply may leave: now, or at the end of its turn."""
        kernel = self._kernel
        if not self._answers_current(reply):
            self._free_at = max(kernel.now, self._free_at) + self._pull.next()
        if self._free_at <= kernel.now:
            send(reply)
        else:
            kernel.call_at(self._free_at, send, reply)

    def _answers_current(self, reply: Reply) -> bool:
        """Is it the answer to the pull that was just judged, and not to a held one?"""
        pull = self._current
        return (
            isinstance(pull, Pull)
            and pull.worker == reply.worker
            and pull.iteration == reply.iteration
        )

    async def _until_free(self) -> None:
        wait = self._free_at - self._kernel.now
        if wait > 0:
            await self._kernel.sleep(seconds(wait))

    async def _served(self, message: Message) -> Message:
        self._current = message
        if isinstance(message, Push):
            cost = self._push.next()
        else:
            cost = self._pull.next() if isinstance(message, Pull) else 0
        if cost:
            await self._kernel.sleep(seconds(cost))
        return message


class _Costs:
    """The times of one kind of message, first to last; without a law they take none."""

    def __init__(self, law: ServiceLaw | None, seed: int, purpose: str, server: int) -> None:
        self._times_s = None if law is None else law.service_times(seed, purpose, server)
        self._count = 0

    def next(self) -> Time:
        if self._times_s is None:
            return 0
        time_s = self._times_s[self._count]
        self._count += 1
        return nanoseconds(time_s)
