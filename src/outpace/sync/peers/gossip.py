"""AD-PSGD: steps of one's own, and an average with somebody else beside each.

The gradient is that at the parameters before the average, and changes those after it (Lian et
al., ICML 2018, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.block import value_of
from outpace.support.randomness import generator
from outpace.sync.peers.context import PeerContext


def partner_of(worker: int, iteration: int, others: Sequence[int], seed: int) -> int | None:
    """With whom it averages beside that iteration: one of these at random; None: nobody is left."""
    if not others:
        return None
    return others[int(generator(seed, "partner", worker, iteration).integers(len(others)))]


async def gossip_worker(me: PeerContext) -> None:
    """One average in every step, begun with it; until `me.must_stop`."""
    mine = me.own()
    iteration = 0
    while not me.must_stop(iteration):
        started = me.now
        exchange = me.begin_exchange(iteration)
        gradient = await me.compute(mine, iteration)
        if gradient is None and me.must_stop(iteration):
            break
        computed = me.now
        await exchange.over()
        if gradient is not None:
            mine.step(value_of(gradient), iteration)
        held = max(0, exchange.began - computed)
        me.iteration_finished(iteration, started, computed, me.now, held)
        iteration += 1
    me.leave()
