"""The loop that all programs of workers without servers have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from outpace.blocks.block import Block
from outpace.support.units import Time
from outpace.sync.peers.context import Parameters, PeerContext


@dataclass(slots=True)
class Iteration:
    """An iteration whose gradient has been computed."""

    number: int
    gradient: Block | None  # None: the gradient cannot be used
    computed: Time  # when the computation ended (ns since the start of the run)
    held: Time = 0  # ns that the worker waited for others to join; the program sets it

    def note_wait(self, since: Time, until: Time) -> None:
        """Add a wait for others. until: time when all had joined, even if before the wait."""
        self.held += max(0, until - since)


async def iterations(
    me: PeerContext, at: Parameters, before: Callable[[int], None] = lambda _: None
) -> AsyncIterator[Iteration]:
    """Compute one gradient after another; each iteration ends when the next one is asked for.

    A script that ends while it computes a gradient ends the loop: that iteration is not counted.

    Args:
        me: the context of the worker.
        at: parameters at which each gradient is computed, as they are when the computation begins.
        before: called with the number of each iteration before its gradient is computed.
    """
    number = me.first_iteration
    while not me.must_stop(number):
        started = me.now
        before(number)
        gradient = await me.compute(at, number)
        if gradient is None and me.must_stop(number):
            return
        iteration = Iteration(number, gradient, me.now)
        yield iteration
        me.iteration_finished(number, started, iteration.computed, me.now, iteration.held)
        number += 1
