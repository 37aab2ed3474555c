"""The time that a server needs for each push, update and pull in virtual time.

A server does one thing at a time, in the order of arrival; its mailbox is the queue. A push or pull
takes effect at the end of its own time. A pull that is held costs its time twice: when it is
judged, and when it is taken out of the buffer and answered. Pulls that are released together are
answered one after the other, and each reply leaves at the end of its turn; all carry the parameters
at the time of the release, since the server does nothing else in between.

If there is a time to judge pulls, a pull costs this time when it arrives, and its own time once,
when it is answered. The time of an update comes after the time of the push that causes it: answers
and later messages wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count, repeat

from outpace.cluster.laws import ServiceLaw
from outpace.simulation.nodes import ServerNode
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message, Pull, Push, Reply, WireMessage
from outpace.sync.shard import Shard


class TimedServerNode(ServerNode):
    """The context of a server that needs time for each push, update and pull.

    The time of its n-th push, update or pull depends only on seed, server, the server's size and n.

    Args:
        size_bytes: size of its parameters. message_bytes: size of its parameters in a message.
    """

    def __init__(
        self, run: VirtualRun, name: str, shard: Shard, size_bytes: int, message_bytes: int
    ) -> None:
        super().__init__(run, name, shard)
        experiment, index = run.experiment, shard.index

        size, seed, update_law = experiment.service_size, experiment.seed, experiment.update_time

        def times(law: ServiceLaw | None, purpose: str, *, has_update: bool) -> Iterator[Time]:
            factor = 1.0
            if law is not None and size is not None:
                counted = size_bytes if has_update else message_bytes
                factor = size.factor(law, counted, has_update=has_update)
            return times_of(law, seed, purpose, index, factor)

        of_push = update_law is None
        self._push_times = times(experiment.push_time, "push time", has_update=of_push)
        self._pull_times = times(experiment.pull_time, "pull time", has_update=False)
        self._update_times = times(update_law, "update time", has_update=True)
        self._judge_times = None  # number of answers that cost a pull's time
        if experiment.judge_time is not None:
            law = experiment.judge_time
            self._judge_times = times_of(law, experiment.seed, "judge time", index)
        self._version = shard.version  # version whose update has had its time
        self._free_at: Time = 0
        self._current: Message | None = None  # the last judged message; None: a held pull
        self.send = self._send
        self.recv = self._process.receiving(self._next)
        self.recv_within = self._process.receiving(self._next_within)

    def _send(self, to: str, *messages: WireMessage) -> None:
        for message in messages:
            if isinstance(message, Reply):
                self._answer(to, message)
            else:
                self._post(to, message)

    def _answer(self, to: str, reply: Reply) -> None:
        """Send the reply when it may leave: now, or at the end of its turn."""
        now, pull = self.now, self._current
        answers_current = (
            isinstance(pull, Pull)
            and pull.worker == reply.worker
            and pull.iteration == reply.iteration
        )
        self._take_time_for_updates()
        if not answers_current or self._judge_times is not None:
            self._free_at = max(now, self._free_at) + next(self._pull_times)
        if self._free_at <= now:
            self._post(to, reply)
        else:
            self._kernel.call_at(self._free_at, partial(self._post, to), reply)

    def _take_time_for_updates(self) -> None:
        """Spend the time of the updates since the last call."""
        updates, self._version = self.shard.version - self._version, self.shard.version
        for _ in range(updates):
            self._free_at = max(self.now, self._free_at) + next(self._update_times)

    async def _next(self) -> Message:
        """Return the next message at the end of its service time."""
        await self._until_free()
        return await self._served(await self.mailbox.get())

    async def _next_within(self, timeout_s: float) -> Message | None:
        """Return the next message at its service's end, if it arrives within `timeout_s`.

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
        self._take_time_for_updates()
        wait = self._free_at - self._kernel.now
        if wait > 0:
            await self._kernel.sleep_ns(wait)

    async def _served(self, message: Message) -> Message:
        self._current = message
        if isinstance(message, Push):
            cost = next(self._push_times)
        elif isinstance(message, Pull):
            cost = next(self._judge_times or self._pull_times)
        else:
            cost = 0
        if cost:
            await self._kernel.sleep_ns(cost)
        return message


def times_of(
    law: ServiceLaw | None, seed: int, purpose: str, node: int, factor: float = 1.0
) -> Iterator[Time]:
    """Yield the times of a node for one purpose in order, times `factor`; zeros without a law."""
    if law is None:
        return repeat(0)
    times_s = law.service_times(seed, purpose, node)
    return (nanoseconds(factor * times_s[n]) for n in count())
