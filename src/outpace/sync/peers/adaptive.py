"""Local SGD whose period a rule changes while the run goes on.

Each worker has the rule and tells it the same after each average: when it began, and the mean loss
of all workers, which travels with the parameters. So all workers take the same decisions, and
every one of them joins the same averages. No process could tell them in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from outpace.blocks.block import value_of
from outpace.support.checks import positive, require
from outpace.support.units import seconds
from outpace.sync.adaptive.adacomm import AdaComm, Averaged
from outpace.sync.peers.context import PeerContext, Reduction
from outpace.sync.peers.iterations import iterations
from outpace.sync.peers.strategy import MOST_ITERATIONS, BufferAveragingStrategy


@dataclass(frozen=True, slots=True)
class AdaptivePeriod(BufferAveragingStrategy):
    """Averages the parameters after as many steps as AdaComm says, and at the end.

    Args:
        every: τ₀, steps from one average to the next at the start.
        interval_s: T₀, seconds between two decisions.
        factor: γ, of the period if the loss does not shorten it.

    Raises:
        ValueError: for numbers out of range.
    """

    every: int
    interval_s: float = 60.0
    factor: float = 0.5
    rule: Literal["adacomm"] = "adacomm"
    kind: Literal["adaptive"] = "adaptive"

    has_common: ClassVar[bool] = False
    has_own: ClassVar[bool] = True

    def __post_init__(self) -> None:
        BufferAveragingStrategy.__post_init__(self)
        require(0 < self.every < MOST_ITERATIONS, "every", "from 1 to 2^31 − 1", self.every)
        interval_s = self.interval_s
        require(positive(interval_s), "interval_s", "a positive number, at most 1e9", interval_s)
        require(0 < self.factor < 1, "factor", "above 0 and below 1", self.factor)

    async def train(self, me: PeerContext) -> None:
        mine, steps, switches = me.own(), 0, 0
        rule = AdaComm(self.every, self.interval_s, self.factor)
        lost, losses = me.losses

        async def average(number: int) -> Reduction:
            """Average with all others, and let the rule decide; number: of the iteration."""
            nonlocal lost, losses, switches
            total, count = me.losses
            loss = (total - lost) / (count - losses) if count > losses else None
            lost, losses = total, count
            reduction = me.begin_all_reduce(mine.read().clone(), steps, loss)
            reduced = await reduction.result()
            mine.replace(reduced.mean)
            before = rule.setting
            order = rule.observe(Averaged(seconds(reduction.began), reduced.loss))
            if order is not None:
                if me.worker == reduction.members[0]:  # one is enough
                    me.switched(switches, number, before, order)
                switches += 1
            return reduction

        async for iteration in iterations(me, mine):
            number = iteration.number
            if iteration.gradient is not None:
                mine.step(value_of(iteration.gradient), number)
            steps += 1
            if steps == rule.setting.value or me.must_stop(number + 1):
                reduction = await average(number)
                iteration.note_wait(iteration.computed, reduction.began)
                steps = 0
        if steps:
            await average(number)
