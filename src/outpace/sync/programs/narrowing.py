"""Gradients and parameters that travel in bfloat16 between workers and servers (`sync.wire`).

A worker rounds each gradient as it is sent. The server adds and takes its steps in the precision
of its parameters, which it keeps, and rounds the parameters of each answer. So no rounding adds up
in the parameters. Initial and final parameters, evaluations, checkpoints, and what servers hand
over to each other, are not rounded.

There is no error feedback, as there is none where workers average among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outpace.blocks.block import Block, value_of
from outpace.blocks.narrowing import Full, narrowed
from outpace.sync.messages import Message, Push, Reply
from outpace.sync.programs.context import Stopped, WorkerContext
from outpace.sync.programs.forwarding import ForwardingContext


class NarrowingWorker(ForwardingContext):
    """The context of a worker's program whose messages carry bfloat16."""

    def __init__(self, me: WorkerContext) -> None:
        super().__init__(me)
        self._full = [Full.of(block) for block in me.initial_parameters()]

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Push) and message.gradient is not None:
                message.gradient = narrowed(message.gradient)
        self._me.send(to, *messages)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        def ends(message: Message) -> bool:
            self._restore(message)
            return ends_it(message)

        return await self._me.execute_until(parameters, iteration, ends)

    def _take(self, message: Message) -> None:
        self._restore(message)
        self._read.append(message)

    def _restore(self, message: Message) -> None:
        if isinstance(message, Reply) and message.parameters is not None:
            server = message.shard
            if server < len(self._full):  # else of the scheduler, which has none
                message.parameters = self._full[server].restored(value_of(message.parameters))
