"""DiLoCo: steps of one's own, and now and then an outer step along what they changed on average.

With θ the common parameters and θ_i those of worker i after n steps from there, the outer gradient
is the mean of θ − θ_i (Douillard et al. 2023, algorithm 1).
"""

from __future__ import annotations

from outpace.blocks import difference
from outpace.messages import value_of
from outpace.programs.peers import PeerContext
from outpace.units import Time


async def diloco_worker(me: PeerContext, *, every: int) -> None:
    """Synchronise after every so many steps, and before leaving."""
    model, mine = me.common(), me.own()
    iteration, steps = 0, 0

    async def synchronise() -> Time:
        """With all others; since when all had joined."""
        reduction = me.begin_all_reduce(difference(model.read(), mine.read()), steps)
        reduced = await reduction.result()
        model.commit(reduced.mean, 1, reduced.weight)
        mine.replace(model.read())
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
        if steps == every or me.must_stop(iteration + 1):
            held, steps = await synchronise() - computed, 0
        me.iteration_finished(iteration, started, computed, me.now, held)
        iteration += 1
    if steps:
        await synchronise()
    me.leave()
