"""The time that a server needs for each push and each pull in virtual time.

A server does one thing at a time, in the order of arrival; its mailbox is the queue.
A push or pull takes effect at the end of its own time. A pull that is held costs its
time twice: when it is judged, and when it is taken out of the buffer and answered. Several
that are released together are answered one after the other, and each reply leaves at the
end of its turn; all carry the parameters at their release, since the server does nothing
else meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, repeat

from outpace.cluster import ServiceLaw
from outpace.kernel import Kernel, Mailbox
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message, Pull, Push, Reply


class Service:
    """Delays the messages and replies of one server by its service times.

    The time of its n-th push or pull depends on seed, server and n alone.
    """

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
        self._push_times = _times(push_time, seed, "push time", server)
        self._pull_times = _times(pull_time, seed, "pull time", server)
        self._free_at: Time = 0
        self._current: Message | None = None  # the message judged last; None: a held pull

    async def next(self) -> Message:
        """Return the next message at the end of its service time."""
        await self._until_free()
        return await self._served(await self._mailbox.get())

    async def next_within(self, timeout_s: float) -> Message | None:
        """Return the next message if it arrives within that time, at the end of its service time.

        Earlier work and the message's own time may end later than the time-out.
        """
        until = self._kernel.now + nanoseconds(timeout_s)
        await self._until_free()
        rest_s = seconds(max(0, until - self._kernel.now))
        message = await self._mailbox.get_within(rest_s)
        if message is None:
            self._current = None
            return None
        return await self._served(message)

    def answer(self, reply: Reply, send: Callable[[Reply], None]) -> None:
        """Call `send(reply)` when this reply may leave: now, or at the end of its turn."""
        kernel = self._kernel
        if not self._answers_current(reply):
            self._free_at = max(kernel.now, self._free_at) + next(self._pull_times)
        if self._free_at <= kernel.now:
            send(reply)
        else:
            kernel.call_at(self._free_at, send, reply)

    def _answers_current(self, reply: Reply) -> bool:
        """True if it answers the pull that was just judged, and not a held one."""
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
            cost = next(self._push_times)
        else:
            cost = next(self._pull_times) if isinstance(message, Pull) else 0
        if cost:
            await self._kernel.sleep(seconds(cost))
        return message


def _times(law: ServiceLaw | None, seed: int, purpose: str, server: int) -> Iterator[Time]:
    """Service times of one kind of message, first to last; zeros without a law."""
    if law is None:
        return repeat(0)
    times_s = law.service_times(seed, purpose, server)
    return (nanoseconds(times_s[n]) for n in count())
