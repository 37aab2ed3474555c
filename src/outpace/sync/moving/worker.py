"""Divisions of the parameters that change while a worker's program goes on.

The program keeps the servers and blocks that it began with. `DividedServers` stands between it and
its context. Until the first new division it passes everything on. After that it cuts what the
program sends for the present servers, and makes the blocks of the program out of their answers, as
views. The program must wait for the answers of all servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from outpace.blocks.block import Block, Value, value_of
from outpace.blocks.division import Division, shared
from outpace.blocks.recutting import Recut, values_of
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import (
    Divided,
    GoOver,
    Leave,
    Message,
    Pause,
    Pull,
    Push,
    Rejoin,
    Reply,
    Resume,
    server_name,
)
from outpace.sync.programs.context import AbortableContext, Stopped
from outpace.sync.programs.forwarding import ForwardingContext

_LOOK_EVERY_S: Final = 0.01


class DividedServers(ForwardingContext):
    """The context of a worker's program in a run whose servers may join and leave.

    Args:
        first: the division that the program knows; server m is the m-th of `me.servers`.
        present: that of the servers which there are now; None: the same.
    """

    def __init__(
        self, me: AbortableContext, first: Division, present: Division | None = None
    ) -> None:
        super().__init__(me)
        self.servers = [server_name(server) for server in first.servers]
        self._numbers = {name: number for number, name in enumerate(self.servers)}
        self._first, self._present = first, first
        self._versions = dict.fromkeys(first.servers, 0)  # of the servers' blocks that were read
        self._shown = 0  # the highest version that the program has seen
        self._look_at: Time = 0  # when to look for a new division before a computation
        self._asked: Pull | None = None  # the last pull
        self._owed: set[int] = set()  # servers of the program whose answer to it is awaited
        self._answers: dict[int, Reply] = {}  # of the present servers to it
        self._unsent: list[tuple[Message, ...]] = []  # for the servers of the program, in order
        self._parts: dict[int, Recut] = {}  # blocks of the present servers out of the program's
        self._blocks: list[Recut] = []  # blocks of the program out of those of the present servers
        if present is not None and present.number > first.number:
            self._follow(present)

    @property
    def division(self) -> Division:
        """The division of the servers that the worker sends to."""
        return self._present

    # -- what the program does -----------------------------------------------------------

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Pull):
                if self._asked is None or message.iteration != self._asked.iteration:
                    self._asked, self._owed = message, set()
                    self._answers.clear()
                self._owed.add(self._numbers[to])
        if self._present is self._first or to not in self._numbers:
            self._me.send(to, *messages)
            return
        assert self._numbers[to] == len(self._unsent), "programs send to all servers in order"
        self._unsent.append(messages)
        if len(self._unsent) == len(self.servers):
            sent, self._unsent = self._unsent, []
            self._send_all(sent)

    def _send_all(self, sent: Sequence[tuple[Message, ...]]) -> None:
        """Send to the present servers what the program has sent to its own."""
        alike = list(zip(*sent, strict=True))
        gradients: dict[int, dict[int, Value] | None] = {}
        for place, messages in enumerate(alike):
            if isinstance(messages[0], Push):
                pushes = [each for each in messages if isinstance(each, Push)]
                gradients[place] = values_of([push.gradient for push in pushes])
        for server in self._present.servers:
            found: list[Message] = []
            for place, messages in enumerate(alike):
                first = messages[0]
                if isinstance(first, Push):
                    found.append(self._push_to(server, first, gradients[place]))
                else:
                    assert isinstance(first, Pull | Leave | Pause | Resume | Rejoin)
                    found.append(first)
            self._me.send(server_name(server), *found)

    def _push_to(self, server: int, push: Push, blocks: dict[int, Value] | None) -> Push:
        gradient = None if blocks is None else self._parts[server].block(blocks)
        version = self._versions[server]
        return Push(push.worker, push.iteration, version, gradient, push.settings, push.skipped)

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        # A worker that goes over now lets the servers move while it computes. Looking costs a
        # system call in a real run, so short iterations look when they wait for their answers.
        if self._me.now >= self._look_at:
            self._look_at = self._me.now + nanoseconds(_LOOK_EVERY_S)
            while message := self._me.recv_nowait():
                self._take(message)
        return await self._me.execute(parameters, iteration)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        def ends(message: Message) -> bool:
            self._take(message)
            found = [ends_it(self._read.popleft()) for _ in range(len(self._read))]
            return any(found)

        return await self._me.execute_until(parameters, iteration, ends)

    # -- what it receives ------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        """Keep a message for the program, or go over to a new division."""
        if isinstance(message, Divided):
            self._go_over(message.division)
        elif isinstance(message, Reply):
            self._take_reply(message)
        else:
            self._read.append(message)

    def _take_reply(self, reply: Reply) -> None:
        if reply.division != self._present.number or reply.shard not in self._present.parts:
            return  # of a server that has handed its part over; the worker has asked again
        if self._present is self._first:
            self._versions[reply.shard] = reply.version
            self._shown = max(self._shown, reply.version)
            if self._asked is not None and reply.iteration >= self._asked.iteration:
                self._owed.discard(reply.shard)
            self._read.append(reply)
            return
        if self._asked is None or reply.iteration != self._asked.iteration:
            return
        self._answers[reply.shard] = reply
        if len(self._answers) == len(self._present.parts):
            self._deliver()

    def _deliver(self) -> None:
        """Give the program the answers of its servers, now that the present ones have answered."""
        answers, last = dict(self._answers), max(self._answers.values(), key=lambda r: r.held)
        self._answers.clear()
        self._versions = {server: reply.version for server, reply in answers.items()}
        self._shown += 1
        blocks: dict[int, Value] = {}
        for server, reply in answers.items():
            assert reply.parameters is not None
            blocks[server] = value_of(reply.parameters)
        clock = max(reply.clock for reply in answers.values())
        for number in sorted(self._owed):
            block, division = self._blocks[number].block(blocks), self._first.number
            self._read.append(
                Reply(
                    number,
                    self.worker,
                    last.iteration,
                    self._shown,
                    clock,
                    last.held,
                    block,
                    division,
                )
            )
        self._owed.clear()

    # -- new divisions -----------------------------------------------------------------------

    def _go_over(self, after: Division) -> None:
        before = self._present
        for server in before.servers:
            self._me.send(server_name(server), GoOver(self.worker, after.number))
        self._versions = {
            server: min(
                self._versions[owner] for owner in before.parts if shared(before.parts[owner], part)
            )
            for server, part in after.parts.items()
        }
        self._follow(after)
        if self._asked is not None and self._owed:
            for server in after.servers:
                self._me.send(server_name(server), self._asked)

    def _follow(self, present: Division) -> None:
        first = self._first
        self._present = present
        self._versions = {server: self._versions.get(server, 0) for server in present.parts}
        self._answers.clear()
        self._parts = {server: Recut(part, first) for server, part in present.parts.items()}
        self._blocks = [Recut(first.parts[number], present) for number in first.servers]
