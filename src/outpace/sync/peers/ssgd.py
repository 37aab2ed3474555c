"""Synchronous SGD by all-reduce: everybody takes the same step, and waits for it."""

from __future__ import annotations

from outpace.sync.peers.context import PeerContext


async def ssgd_worker(me: PeerContext) -> None:
    """Compute, average the gradients of all, take one step, until `me.must_stop`."""
    model = me.common()
    iteration = 0
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.compute(model, iteration)
        if gradient is None and me.must_stop(iteration):
            break
        computed = me.now
        reduction = me.begin_all_reduce(gradient)
        reduced = await reduction.result()
        if reduced.members:
            model.commit(reduced.mean, 1, reduced.weight)
        me.iteration_finished(iteration, started, computed, me.now, reduction.began - computed)
        iteration += 1
    me.leave()
