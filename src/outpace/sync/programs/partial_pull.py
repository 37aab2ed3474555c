"""Partial pull (PSP-SGD): a worker continues when enough servers have answered.

In each iteration the worker pushes to and pulls from every server. It continues when all servers
have answered, or a given time after a quorum of them has. Blocks of the other servers keep their
old values. A late reply, which comes during the computation or a later wait, is used if its version
is newer than the block held. A worker processes all replies that have arrived before it computes,
and pushes carry the versions that the gradient was computed from. With `late: drop`, as in the
paper (algorithm 1, lines 10 and 11), late replies are not used; then the block of a server that
always answers late is never updated.

If a server has left `ahead` pulls of a worker unanswered, the worker waits for this server,
whatever the quorum. So the worker's lead and the number of messages queued at the server are
bounded. After its last iteration the worker waits for all servers, so that all its pushes have
arrived when it leaves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from outpace.support.checks import NotNegative, Percent, check_ranges
from outpace.support.shares import share_of
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message, Pull, Rejoin, Reply
from outpace.sync.programs.context import WorkerContext


@dataclass(frozen=True, slots=True)
class PartialPull:
    """The servers that a worker waits for in each iteration (b and τ2 of PSP-SGD).

    Args:
        quorum_percent: share of the servers, rounded up.
        timeout_s: seconds to wait for the other servers after the quorum has answered.
        ahead: number of pulls that a server may leave unanswered.
        late: whether to use a reply to an earlier pull if it is newer than the block held; drop is
            the rule of the paper.

    Raises:
        ValueError: for values out of range.
    """

    quorum_percent: Percent
    timeout_s: NotNegative = 0.0
    ahead: Annotated[int, Field(ge=1, le=100_000)] = 16
    late: Literal["use", "drop"] = "use"

    def __post_init__(self) -> None:
        check_ranges(self)

    def quorum(self, servers: int) -> int:
        """Return the number of servers in the quorum."""
        return share_of(servers, self.quorum_percent)


class Unanswered(deque[int]):
    """The iterations of one worker's pulls that one server has not answered.

    A reply answers its own pull and all earlier ones.
    """

    __slots__ = ()

    asked = deque.append

    def answered(self, iteration: int) -> None:
        while self and self[0] <= iteration:
            self.popleft()


class Puller:
    """The blocks that a worker holds, and its unanswered pulls."""

    def __init__(self, me: WorkerContext, pull: PartialPull) -> None:
        self.parameters = me.initial_parameters()
        self.versions = [0] * len(me.servers)
        self.clock = 0  # the highest clock of a reply
        self.held: Time = 0  # time for which the last server to answer held the pull
        self.last = 0  # the last server to answer
        self._me, self._pull = me, pull
        # unanswered pulls of all servers; a queue for each would take 760 bytes
        self._asked = Unanswered()
        # the iteration of the last pull that the server answered
        self._answered = [-1] * len(me.servers)
        self._others = len(me.servers) - pull.quorum(len(me.servers))  # servers besides the quorum
        self._iteration = 0
        self._missing = 0  # servers that have not answered the current pull

    def asked(self, iteration: int) -> None:
        """Note that the worker has sent a pull to every server."""
        if not self._missing:
            self._asked.clear()
        self._asked.asked(iteration)
        self._iteration, self._missing, self.held = iteration, len(self._answered), 0

    async def begin(self) -> int:
        """Return the iteration to begin with; in the middle of a run, first get its parameters.

        The worker then waits for all servers, because it has no parameters to use meanwhile.
        """
        me, first = self._me, self._me.first_iteration
        if first is None:
            return 0
        for name in me.servers:
            me.send(name, Rejoin(me.worker, first))
        if first > 0:
            before = first - 1
            self.asked(before)
            for name in me.servers:
                me.send(name, Pull(me.worker, before, me.coin(before)))
            await self.everything()
            self.look()
        return max(first, self.clock)

    async def enough(self) -> None:
        """Wait until enough servers have answered, and process all replies that have arrived."""
        me = self._me
        while (missing := self._missing - self._others) > 0:
            for reply in await me.recv_several(missing):
                self._take(reply)
        if not self._missing:
            return  # no reply can arrive
        until = me.now + nanoseconds(self._pull.timeout_s)
        while self._missing and (message := await me.recv_within(seconds(max(0, until - me.now)))):
            self._take(message)
        while self._most_unanswered() >= self._pull.ahead:
            self._take(await me.recv())
        self.look()

    def look(self) -> None:
        """Process all replies that have arrived."""
        while message := self._me.recv_nowait():
            self._take(message)

    async def everything(self) -> None:
        """Wait until all servers have answered."""
        while self._missing:
            self._take(await self._me.recv())

    def _most_unanswered(self) -> int:
        """Return the number of unanswered pulls of the server that is furthest behind."""
        self._asked.answered(min(self._answered))
        return len(self._asked)

    def _take(self, reply: Message) -> None:
        assert isinstance(reply, Reply)
        assert reply.parameters is not None
        server, iteration, clock = reply.shard, reply.iteration, reply.clock
        if reply.version > self.versions[server]:
            in_time = iteration == self._iteration or clock > self._iteration
            if in_time or self._pull.late == "use":
                self.parameters[server], self.versions[server] = reply.parameters, reply.version
        if clock > self.clock:
            self.clock = clock
        if iteration > self._answered[server]:
            self._answered[server] = iteration
        if iteration == self._iteration:
            self._missing -= 1
            self.held, self.last = reply.held, server
