"""The time that a server needs for each push and each pull in virtual time.

A server does one thing at a time, in the order of arrival; its mailbox is the queue.
A push or pull takes effect at the end of its own time. A pull that is held costs its
time twice: when it is judged, and when it is taken out of the buffer and answered. Several
that are released together are answered one after the other, and each reply leaves at the
end of its turn; all carry the parameters at their release, since the server does nothing
else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count, repeat

from outpace.cluster.laws import ServiceLaw
from outpace.simulation.nodes import ServerNode
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message, Pull, Push, Reply
from outpace.sync.shard import Shard


class TimedServerNode(ServerNode):
    """The context of a server that needs time for each push and pull.

    The time of its n-th push or pull depends on seed, server and n alone.
    """

    def __init__(self, run: VirtualRun, name: str, shard: Shard) -> None:
        super().__init__(run, name, shard)
        experiment = run.experiment
        self._push_times = _times(experiment.push_time, experiment.seed, "push time", shard.index)
        self._pull_times = _times(experiment.pull_time, experiment.seed, "pull time", shard.index)
        self._free_at: Time = 0
        self._current: Message | None = None  # the message judged last; None: a held pull
        self.recv, self.recv_within = self._next, self._next_within

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Reply):
                self._answer(to, message)
            else:
                super().send(to, message)

    def _answer(self, to: str, reply: Reply) -> None:
        """Send the reply when it may leave: now, or at the end of its turn."""
        now, pull = self.now, self._current
        answers_current = (
            isinstance(pull, Pull)
            and pull.worker == reply.worker
            and pull.iteration == reply.iteration
        )
        if not answers_current:  # it answers a held pull
            self._free_at = max(now, self._free_at) + next(self._pull_times)
        if self._free_at <= now:
            super().send(to, reply)
        else:
            self._kernel.call_at(self._free_at, partial(super().send, to), reply)

    async def _next(self) -> Message:
        """Return the next message at the end of its service time."""
        await self._until_free()
        return await self._served(await self.mailbox.get())

    async def _next_within(self, timeout_s: float) -> Message | None:
        """Return the next message if it arrives within that time, at the end of its service time.

        Earlier work and the message's own time may end later than the time-out.
        """
        until = self.now + nanoseconds(timeout_s)
        await self._until_free()
        message = await self.mailbox.get_within(seconds(max(0, until - self.now)))
        if message is None:
            self._current = None
            return None
        return await self._served(message)

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
    """Yield the service times of one kind of message in order; zeros without a law."""
    if law is None:
        return repeat(0)
    times_s = law.service_times(seed, purpose, server)
    return (nanoseconds(times_s[n]) for n in count())
