"""DiLoCo: steps of one's own, and now and then an outer step along what they changed on average.

With θ the common parameters and θ_i those of worker i after n steps from there, the outer gradient
is the mean of θ − θ_i (Douillard et al. 2023, algorithm 1).

Overlapped, a worker goes on with θ_i while that mean is made (the idea is Streaming DiLoCo's;
Douillard et al. 2025). There one blends θ_i with the new θ; here nothing is blended or lost: at
the end of the first step that finds the mean there, θ takes its outer step, and the worker goes
on from

    θ_i ← θ + (θ_i − what θ_i was when its outer gradient was given away)

so each inner step is in exactly one outer gradient, the next one that is given away (with a plain
outer step of length 1 that is CoCoD-SGD; Shen et al., IJCAI 2019). These are given away
after the same steps as without overlap, n apart.
"""

from __future__ import annotations

from outpace.blocks.block import Value, value_of
from outpace.support.units import Time
from outpace.sync.parameter_block import difference, plus
from outpace.sync.peers.context import PeerContext, Reduction


async def diloco_worker(me: PeerContext, *, every: int, overlap: bool = False) -> None:
    """Synchronise after every so many steps, and before leaving.

    overlap: do not wait for it, unless the next one is due, or there is no next step.
    """
    model, mine = me.common(), me.own()
    given: Value = mine.read()
    reduction: Reduction | None = None

    async def outer_step(reduction: Reduction) -> Time:
        """Wait for it if need be; return how long of that was for others to join."""
        before = me.now
        reduced = await reduction.result()
        since = difference(mine.read(), given)
        model.commit(reduced.mean, 1, reduced.weight)
        mine.replace(plus(since, model.read()))
        return max(0, reduction.began - before)

    iteration, steps = 0, 0
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.compute(mine, iteration)
        if gradient is None and me.must_stop(iteration):
            break
        computed, held = me.now, 0
        if gradient is not None:
            mine.step(value_of(gradient), iteration)
        steps += 1
        last = me.must_stop(iteration + 1)
        due = steps == every or last
        if reduction is not None and (due or reduction.done):
            held += await outer_step(reduction)
            reduction = None
        if due:
            given = mine.read()
            reduction = me.begin_all_reduce(difference(model.read(), given), steps)
            steps = 0
        if reduction is not None and (last or not overlap):
            held += await outer_step(reduction)
            reduction = None
        me.iteration_finished(iteration, started, computed, me.now, held)
        iteration += 1
    if reduction is not None:
        await outer_step(reduction)
    if steps:
        given = mine.read()
        await outer_step(me.begin_all_reduce(difference(model.read(), given), steps))
    me.leave()
