"""Local SGD: workers train separately and average their parameters from time to time.

With steps of t seconds and an average that takes t_sync, a round of γ + 1 steps takes
(γ + 1)·t + t_sync (HPSGD, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.blocks.block import value_of
from outpace.support.checks import Iterations, Steps
from outpace.support.units import Time
from outpace.sync.peers.context import PeerContext
from outpace.sync.peers.iterations import iterations
from outpace.sync.peers.strategy import BufferAveragingStrategy


@dataclass(frozen=True, slots=True)
class LocalSgd(BufferAveragingStrategy):
    """Averages the parameters after every `every` steps, and at the end (Stich, ICLR 2019).

        outpace.sync.LocalSgd(every=8)  # sync: {kind: local-sgd, every: 8}

    Args:
        every: steps from one average to the next; γ + 1 in the notation of HPSGD (section 3.2).
        after: number of steps at the beginning; a worker averages after each of them (post-local
            SGD; Lin et al., ICLR 2020).

    Raises:
        ValueError: if `every` is not positive, or `after` is negative.
    """

    every: Steps
    after: Iterations = 0
    kind: Literal["local-sgd"] = "local-sgd"

    has_common: ClassVar[bool] = False
    has_own: ClassVar[bool] = True
    can_be_saved: ClassVar[bool] = True

    async def train(self, me: PeerContext) -> None:
        mine, steps = me.own(), 0

        async def average() -> Time:
            """Average with all others; return the time when all workers had joined."""
            reduction = me.begin_all_reduce(mine.read().clone(), steps)
            mine.replace((await reduction.result()).mean)
            return reduction.began

        async for iteration in iterations(me, mine):
            number = iteration.number
            if iteration.gradient is not None:
                mine.step(value_of(iteration.gradient), number)
            steps += 1
            if steps == self.every or number < self.after or me.must_stop(number + 1):
                iteration.note_wait(iteration.computed, await average())
                steps = 0
                me.may_save(number + 1)
        if steps:
            await average()
