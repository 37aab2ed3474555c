"""Partial pull (PSP-SGD): a worker goes on when enough servers have answered.

It pushes to and pulls from every server in each iteration, as always, and waits until so
many per cent of them have answered this pull and a time has passed since then, or all
have. Blocks of the others keep their old values. What comes late, during the computation
or a later wait, is used if its version is newer than the block held, and before it
computes a worker takes all that has arrived. So each gradient belongs to the versions that
were held when its computation began, and says so. With `late: drop` it is as the paper prints it
(algorithm 1, lines 10 and 11): what comes late is not used. A server that is always among the
last is then never heard of again.

No server is left behind without bound: with `ahead` of its pulls unanswered by one server
a worker waits for it, quorum or not. So what it can heap up there is bounded, too. After
its last iteration it waits for all, so that nothing of its work is on its way when it
leaves.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from outpace.support.checks import not_negative, require
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Leave, Message, Pull, Push, Reply
from outpace.sync.programs.context import WorkerContext


@dataclass(frozen=True, slots=True)
class PartialPull:
    """How many servers a worker waits for (PSP-SGD's b and τ2).

    quorum_percent: of the servers, rounded up. timeout_s: it goes on so long after that
    many have answered, unless all have before. ahead: how many of its pulls a server may
    owe it at a time. late: whether a block that answers an earlier pull, and is older than
    any answer to this one, is used if it is newer than the one held. Raises ValueError for
    a percentage outside of (0, 100], and for times and numbers that are none.
    """

    quorum_percent: float
    timeout_s: float = 0.0
    ahead: int = 16
    late: Literal["use", "drop"] = "use"

    def __post_init__(self) -> None:
        percent = self.quorum_percent
        require(0 < percent <= 100, "quorum_percent", "above 0 and at most 100", percent)
        require(not_negative(self.timeout_s), "timeout_s", "a number from 0 to 1e9", self.timeout_s)
        require(0 < self.ahead <= 100_000, "ahead", "from 1 to 100,000", self.ahead)
        require(self.late in ("use", "drop"), "late", "use or drop", self.late)

    def quorum(self, servers: int) -> int:
        """How many of so many servers that is: exact, by the decimals that were written."""
        return math.ceil(Fraction(repr(float(self.quorum_percent))) * servers / 100)


class Unanswered:
    """The pulls of one worker that one server has not answered.

    A reply answers its own pull and all before it.
    """

    __slots__ = ("_iterations",)

    def __init__(self) -> None:
        self._iterations: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._iterations)

    def asked(self, iteration: int) -> None:
        self._iterations.append(iteration)

    def answered(self, iteration: int) -> None:
        while self._iterations and self._iterations[0] <= iteration:
            self._iterations.popleft()


class _Puller:
    """What a worker knows of the servers."""

    def __init__(self, me: WorkerContext, pull: PartialPull) -> None:
        self.parameters = me.initial_parameters()
        self.versions = [0] * len(me.servers)
        self.clock = 0  # the highest that a server has told
        self.held: Time = 0  # by the server that answered this pull last
        self.last = 0
        self._me, self._ahead = me, pull.ahead
        self._uses_late = pull.late == "use"
        self._timeout = nanoseconds(pull.timeout_s)
        self._unanswered = [Unanswered() for _ in me.servers]
        self._least = pull.quorum(len(me.servers))
        self._iteration = 0
        self._answers = len(me.servers)  # that have answered this pull; nothing is asked yet

    def ask(self, iteration: int) -> None:
        """This pull goes to every server now."""
        self._iteration, self._answers, self.held = iteration, 0, 0
        for unanswered in self._unanswered:
            unanswered.asked(iteration)

    async def enough(self) -> None:
        """Until enough servers have answered, and for what has arrived beside that."""
        me = self._me
        while self._answers < self._least:
            self._take(await me.recv())
        until = me.now + self._timeout
        while not self._all and (message := await me.recv_within(seconds(max(0, until - me.now)))):
            self._take(message)
        while self._far_ahead:
            self._take(await me.recv())
        while message := me.recv_nowait():
            self._take(message)

    async def everything(self) -> None:
        """Until all servers have answered."""
        while not self._all:
            self._take(await self._me.recv())

    @property
    def _all(self) -> bool:
        return self._answers == len(self._unanswered)

    @property
    def _far_ahead(self) -> bool:
        return max(map(len, self._unanswered)) >= self._ahead

    def _take(self, reply: Message) -> None:
        assert isinstance(reply, Reply)
        assert reply.parameters is not None
        server = reply.shard
        in_time = reply.iteration == self._iteration or reply.clock > self._iteration
        if reply.version > self.versions[server] and (in_time or self._uses_late):
            self.parameters[server], self.versions[server] = reply.parameters, reply.version
        self.clock = max(self.clock, reply.clock)
        self._unanswered[server].answered(reply.iteration)
        if reply.iteration == self._iteration:
            self._answers += 1
            self.held, self.last = reply.held, server


async def partial_pull_worker(me: WorkerContext, pull: PartialPull) -> None:
    """Compute, push, pull, go on with what is there, until `me.must_stop`."""
    worker, servers = me.worker, me.servers
    puller = _Puller(me, pull)
    iteration = 0
    while not me.must_stop(iteration):
        started, read = me.now, tuple(puller.versions)
        gradient = await me.execute(puller.parameters, iteration)
        computed = me.now
        coin = me.coin(iteration)
        puller.ask(iteration)
        for server, name in enumerate(servers):
            me.send(
                name,
                Push(worker, iteration, read[server], gradient[server]),
                Pull(worker, iteration, coin),
            )
        await puller.enough()
        me.iteration_finished(iteration, started, computed, me.now, puller.held, puller.last)
        iteration = max(iteration + 1, puller.clock)
    await puller.everything()
    for name in servers:
        me.send(name, Leave(worker))
