"""HPSGD: a worker computes on a local replica while what it gathered before is averaged.

The paper (section 3.1) has two activities in every worker that share memory: P_t trains, P_s
synchronises. Here P_s is the all-reduce itself, which goes on by itself; P_t looks after
each step whether it is done, and so never waits for it. What comes of a synchronization is

    W ← W − μ · mean over the workers of the sum of their gradients in it     (equation 1)

where the mean is over all N that the run began with, so that each gradient counts the same
whoever has left. Gradients are gathered for the next synchronization while one is under way
(two buffers, swapped), so none is lost or counted twice.

The gradients are those at the global model W until the first step of a synchronization is over,
then those at a replica of it that has taken this worker's steps since; it is given up when the
synchronization is done. With a synchronization as long as k steps there is one in every k
steps: in the time in which Local SGD averages once, (γ + 1 + k) steps, (γ + 1)/k + 1 of them
(section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from outpace.blocks.block import value_of
from outpace.support.units import Time
from outpace.sync.peers.context import PeerContext, Reduced, Reduction


async def hpsgd_worker(
    me: PeerContext,
    *,
    delayed: bool,
    window: float = math.inf,
    divisor: Callable[[float], float] = lambda _: 1.0,
) -> None:
    """Train until `me.must_stop`, then wait until what is left has been synchronised.

    That wait is part of the last iteration.

    delayed: the averaged gradients change the model when the next synchronization begins, which
    finds P_t on its way already: its next gradient is still that at the old model. window: with
    so many gradients gathered wait for the synchronization. divisor: of what comes of one with so
    many iterations of a worker on average.
    """
    model, gathered = me.common(), me.gathered()
    replica = model.replica()
    reduction: Reduction | None = None
    late: Reduced | None = None  # to be committed by the P_s that has just been woken

    def commit(reduced: Reduced) -> None:
        if reduced.members:
            each = divisor(reduced.weight / reduced.members)
            model.commit(reduced.total, me.workers * each, reduced.weight)

    async def synchronise(reduction: Reduction | None) -> Time:
        """Wait for this one, and for one more of what has been gathered meanwhile.

        Return how long of that was for others to join.
        """
        held = 0
        while reduction is not None:
            joined = me.now
            commit(await reduction.result())
            held += max(0, reduction.began - joined)
            reduction = me.begin_all_reduce(*gathered.take()) if gathered.count else None
        return held

    iteration, last = 0, me.must_stop(0)
    while not last:
        started = me.now
        if late is not None:
            replica.stay()
            commit(late)
        gradient = await me.compute(replica, iteration)
        if late is not None:
            replica.follow()
            late = None
        if gradient is None and me.must_stop(iteration):
            break
        computed, held = me.now, 0
        full = gathered.count + 1 >= window
        if reduction is not None and (reduction.done or full):
            reduced = await reduction.result()
            held = max(0, reduction.began - computed)
            reduction = None
            replica.follow()
            if delayed:
                late = reduced
            else:
                commit(reduced)
        if gradient is not None:
            value = value_of(gradient)
            gathered.add(value)
            if reduction is not None:
                replica.step(value, iteration)
        if reduction is None and gathered.count:
            reduction = me.begin_all_reduce(*gathered.take())
        last = me.must_stop(iteration + 1)
        if last:
            if late is not None:
                commit(late)
            held += await synchronise(reduction)
        me.iteration_finished(iteration, started, computed, me.now, held)
        iteration += 1
    if not last:
        await synchronise(reduction)
    me.leave()
