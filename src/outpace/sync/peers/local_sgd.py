"""Local SGD: workers take steps of their own and average their parameters now and then.

With steps of t seconds and an average that takes t_sync, a round of γ + 1 steps takes
(γ + 1)·t + t_sync (HPSGD, section 3.2). Never averaging is PSGD.
"""

from __future__ import annotations

from outpace.blocks.block import value_of
from outpace.support.units import Time
from outpace.sync.parameter_block import copy_of
from outpace.sync.peers.context import PeerContext


async def local_sgd_worker(me: PeerContext, *, every: int, after: int = 0) -> None:
    """Average after every so many steps, and before leaving; until step `after`, after each."""
    mine = me.own()
    iteration, steps = 0, 0

    async def average() -> Time:
        """With all others; since when all had joined."""
        reduction = me.begin_all_reduce(copy_of(mine.read()), steps)
        mine.replace((await reduction.result()).mean)
        return reduction.began

    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.compute(mine, iteration)
        if gradient is None and me.must_stop(iteration):
            break
        computed, held = me.now, 0
        if gradient is not None:
            mine.step(value_of(gradient), iteration)
        steps += 1
        if steps == every or iteration < after or me.must_stop(iteration + 1):
            held, steps = await average() - computed, 0
        me.iteration_finished(iteration, started, computed, me.now, held)
        iteration += 1
    if steps:
        await average()
    me.leave()


async def psgd_worker(me: PeerContext) -> None:
    """Take steps alone, until `me.must_stop`. (Zinkevich et al., NIPS 2010.)"""
    mine = me.own()
    iteration = 0
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.compute(mine, iteration)
        if gradient is None and me.must_stop(iteration):
            break
        if gradient is not None:
            mine.step(value_of(gradient), iteration)
        me.iteration_finished(iteration, started, me.now, me.now, 0)
        iteration += 1
    me.leave()
