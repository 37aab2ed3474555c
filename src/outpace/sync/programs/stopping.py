"""Workers that stop computing a gradient which no server would take any more.

A server tells each worker when it has finished an iteration without it (`EndedWithout`). When all
servers have, the worker stops, pushes without a gradient, and goes on with the present iteration
and parameters. Servers finish iterations by themselves; as long as one of them waits, the gradient
counts there.

Any program of a worker that computes whole gradients can be stopped: `StoppingWorker` stands
between the program and its context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outpace.blocks.block import Block
from outpace.support.units import Time
from outpace.sync.messages import EndedWithout, Message
from outpace.sync.programs.context import AbortableContext, Stopped
from outpace.sync.programs.forwarding import ForwardingContext


class StoppingWorker(ForwardingContext):
    """The context of a worker's program whose servers finish iterations without late workers.

    A gradient whose computation was stopped is None for every server: the worker abstains.
    """

    def __init__(self, me: AbortableContext) -> None:
        super().__init__(me)
        self.send = me.send
        self.iteration_finished = self._iteration_finished
        # By server: the last iteration that it has finished without this worker.
        self._ended = [-1] * len(self.servers)
        # Of an iteration whose computation was stopped: see `Stopped`.
        self._left: tuple[int, Time] | None = None
        self._whole: Time = 0  # ns of the last computation, with what was left of it; 0: unknown

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        me, started = self._me, self._me.now
        self._left = None
        made: Sequence[Block | None] | Stopped
        if self._is_over(iteration):  # the servers finished it after they had answered
            made = Stopped(0.0)
        else:
            made = await me.execute_until(parameters, iteration, self._ends(iteration))
        took = me.now - started
        if not isinstance(made, Stopped):
            self._whole = took
            return made
        left = made.left
        if left is None:  # as long as the last one, or twice as long as until now if it is longer
            left = self._whole - took if self._whole >= took else took
        self._left, self._whole = (iteration, left), took + left
        return [None] * len(self.servers)

    def _ends(self, iteration: int) -> Callable[[Message], bool]:
        def ends_it(message: Message) -> bool:
            self._take(message)
            return self._is_over(iteration)

        return ends_it

    def _is_over(self, iteration: int) -> bool:
        return iteration <= min(self._ended)

    def _take(self, message: Message) -> None:
        """Keep a message for the program, or note that an iteration has ended without this worker.

        What comes after the gradient was pushed says nothing new.
        """
        if isinstance(message, EndedWithout):
            self._ended[message.shard] = max(self._ended[message.shard], message.iteration)
        else:
            self._read.append(message)

    def _iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_server: int,
        left: Time | None = None,
    ) -> None:
        """Record an iteration, with what was left of its computation if it was stopped."""
        if self._left is not None and self._left[0] == iteration:
            left = self._left[1]
        self._me.iteration_finished(iteration, started, computed, finished, held, last_server, left)
