"""Contexts between a worker's program and its context that change messages.

Such a context changes a worker's messages, its gradients, or the end of its computation:
`skipping`, `cutoff`, `narrowing`. These contexts can be stacked, and any program runs in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from outpace.blocks.block import Block
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import Message
from outpace.sync.programs.context import SendPart, Stopped, WorkerContext


class ForwardingContext:
    """Passes everything on; subclasses override some methods. Implements `WorkerContext`.

    me: the context to which everything is passed on.
    """

    def __init__(self, me: WorkerContext) -> None:
        self._me = me
        self._read: deque[Message] = deque()  # for the program
        self.worker, self.servers = me.worker, me.servers
        self.first_iteration = me.first_iteration
        self.initial_parameters, self.coin = me.initial_parameters, me.coin
        self.must_stop, self.iteration_finished = me.must_stop, me.iteration_finished

    def _take(self, message: Message) -> None:
        """Store a message for the program, or handle it if it is for a subclass alone."""
        self._read.append(message)

    @property
    def now(self) -> Time:
        return self._me.now

    def send(self, to: str, *messages: Message) -> None:
        self._me.send(to, *messages)

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

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        return await self._me.execute(parameters, iteration)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        return await self._me.execute_until(parameters, iteration, ends_it)

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        await self._me.execute_in_parts(parameters, iteration, send)
