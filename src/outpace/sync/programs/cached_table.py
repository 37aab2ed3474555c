"""Workers that read from a cache, as in SSPtable (Ho et al., NIPS 2013; Petuum, Bösen).

Each iteration pushes its update to every server. The cached block of a server has a
clock, the server's when it was pulled, and does to begin iteration i+1 with as long as it
is at least i+1−s: then others' updates of up to s iterations are missing in it. Only else
the worker pulls, and the server answers when it is that far itself. A worker sees its own
updates in its cache at once (read-my-writes). The last iteration pulls from all, so that
nothing of the worker's work is on its way when it leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from outpace.blocks.block import Block, Value, value_of
from outpace.sync.messages import Leave, Pull, Push, Reply
from outpace.sync.programs.context import WorkerContext

OwnStep: TypeAlias = Callable[[Block, Value], Block]  # parameters, gradient -> new parameters


async def cached_table_worker(
    me: WorkerContext, *, staleness: int, own_step: OwnStep | None
) -> None:
    """Compute, push, and pull what is too old, until `me.must_stop`.

    own_step: what the server will do with a gradient, here for the cached block; it must not
    change either. None: the worker does not see its own updates until it pulls.
    """
    worker, servers = me.worker, me.servers
    parameters = me.initial_parameters()
    versions, clocks = [0] * len(servers), [0] * len(servers)
    iteration = 0
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.execute(parameters, iteration)
        computed = me.now
        coin, last = me.coin(iteration), me.must_stop(iteration + 1)
        pulled = 0
        for server, name in enumerate(servers):
            block = gradient[server]
            if own_step is not None and block is not None:
                block = value_of(block)  # a deferred one can be read once, and the server reads
                parameters[server] = own_step(parameters[server], block)
            push = Push(worker, iteration, versions[server], block)
            if last or clocks[server] < iteration + 1 - staleness:
                pulled += 1
                me.send(name, push, Pull(worker, iteration, coin))
            else:
                me.send(name, push)
        held, answered = 0, 0
        for _ in range(pulled):
            reply = await me.recv()
            assert isinstance(reply, Reply)
            assert reply.parameters is not None
            # The server applied this worker's pushes before it answered the pull behind them.
            server, parameters[reply.shard] = reply.shard, reply.parameters
            versions[server], clocks[server] = reply.version, reply.clock
            held, answered = reply.held, server
        me.iteration_finished(iteration, started, computed, me.now, held, answered)
        iteration += 1
    for name in servers:
        me.send(name, Leave(worker))
