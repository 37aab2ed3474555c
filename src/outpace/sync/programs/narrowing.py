"""Sends gradients and parameters between workers and servers in bfloat16 (`sync.wire`).

A worker rounds each gradient when it sends it. The server adds gradients and takes steps in the
full precision of its parameters, and rounds only a copy of the parameters for each answer. So
rounding errors do not accumulate in the parameters. Initial and final parameters, evaluations,
checkpoints, and state that one server passes to another are not rounded.

There is no error feedback; strategies without servers have none either.
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
            if server < len(self._full):  # otherwise a message of the scheduler, which has no block
                message.parameters = self._full[server].restored(value_of(message.parameters))
