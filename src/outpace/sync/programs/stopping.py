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
from typing import NamedTuple

from outpace.blocks.block import Block
from outpace.support.units import Time
from outpace.sync.messages import EndedWithout, Message
from outpace.sync.programs.context import AbortableContext, Stopped
from outpace.sync.programs.forwarding import ForwardingContext


class _Ended(NamedTuple):
    """A computation that was stopped."""

    iteration: int
    took: Time
    share: float  # of the whole computation; NaN: unknown


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
        self._stopped: _Ended | None = None  # the last computation, if it was stopped
        self._whole: Time = 0  # ns of the last computation that was not; 0: there is none

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        me, started = self._me, self._me.now
        self._stopped = None
        made: Sequence[Block | None] | Stopped
        if self._is_over(iteration):  # the servers finished it after they had answered
            made = Stopped(0.0)
        else:
            made = await me.execute_until(parameters, iteration, self._ends(iteration))
        took = me.now - started
        if not isinstance(made, Stopped):
            self._whole = took
            return made
        self._stopped = _Ended(iteration, took, made.share)
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
        whole: Time | None = None,
    ) -> None:
        """Record an iteration; if its computation was stopped, with what all of it would take."""
        stopped = self._stopped
        if stopped is not None and stopped.iteration == iteration:
            whole = self._whole_of(stopped)
        self._me.iteration_finished(
            iteration, started, computed, finished, held, last_server, whole
        )

    def _whole_of(self, stopped: _Ended) -> Time:
        """Return how many ns a computation would have taken to its end, as far as that is known.

        If the share is not: as long as the last one that was not stopped, or twice as long as it
        took until it was stopped, if this one has outlasted the last one.
        """
        if stopped.share > 0:
            return round(stopped.took / stopped.share)
        return self._whole if self._whole >= stopped.took else 2 * stopped.took
