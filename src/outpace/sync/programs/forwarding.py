"""The common part of the contexts that stand between a worker's program and its context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from outpace.blocks.block import Block
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message
from outpace.sync.programs.context import AbortableContext, SendPart


class ForwardingContext(ABC):
    """Passes messages on to a worker's program; some are for a subclass alone.

    me: the context behind it.
    """

    def __init__(self, me: AbortableContext) -> None:
        self._me = me
        self._read: deque[Message] = deque()  # for the program
        self.worker, self.servers = me.worker, me.servers
        self.first_iteration = me.first_iteration
        self.initial_parameters, self.coin = me.initial_parameters, me.coin
        self.must_stop, self.iteration_finished = me.must_stop, me.iteration_finished

    @abstractmethod
    def _take(self, message: Message) -> None:
        """Add a message to those for the program, or handle it."""

    @property
    def now(self) -> Time:
        return self._me.now

    async def recv(self) -> Message:
        while not self._read:
            self._take(await self._me.recv())
        return self._read.popleft()

    async def recv_several(self, count: int) -> Sequence[Message]:
        return [await self.recv()]

    async def recv_within(self, timeout_s: float) -> Message | None:
        until = self._me.now + nanoseconds(timeout_s)
        while not self._read:
            message = await self._me.recv_within(seconds(max(0, until - self._me.now)))
            if message is None:
                return None
            self._take(message)
        return self._read.popleft()

    def recv_nowait(self) -> Message | None:
        while not self._read and (message := self._me.recv_nowait()):
            self._take(message)
        return self._read.popleft() if self._read else None

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        await self._me.execute_in_parts(parameters, iteration, send)

    def prepare(self, iteration: int) -> None:
        self._me.prepare(iteration)
