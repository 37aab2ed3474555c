"""A global barrier, as in PS-Lite: the baseline that FluentPS compares with.

A worker pushes to all servers, waits until each has acknowledged that, and reports to the
scheduler. That one sees whole iterations, of all servers together, and applies the
strategy's pull condition to them: it lets the worker through when it holds. Only then the
worker pulls, and the servers answer at once. So no server's answer overlaps with another
server's pushes, and the messages to and fro come on top.

The scheduler is a shard without parameters, behind the same program as a server.
"""

from __future__ import annotations

from outpace.sync.messages import SCHEDULER, Ack, Leave, Pull, Push, Reply
from outpace.sync.programs.context import WorkerContext


async def global_barrier_worker(me: WorkerContext) -> None:
    """Compute, push, report, pull, until `me.must_stop`."""
    worker, servers = me.worker, me.servers
    scheduler = len(servers)  # its number, after the shards'
    parameters = me.initial_parameters()
    versions = [0] * scheduler
    iteration = 0
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.execute(parameters, iteration)
        computed = me.now
        for server, name in enumerate(servers):
            me.send(name, Push(worker, iteration, versions[server], gradient[server]))
        for _ in servers:
            ack = await me.recv()
            assert isinstance(ack, Ack)
        # Without gradient: here its progress is all that counts.
        me.send(SCHEDULER, Push(worker, iteration, 0), Pull(worker, iteration, me.coin(iteration)))
        passed = await me.recv()
        assert isinstance(passed, Reply)
        clock = passed.clock
        for name in servers:
            me.send(name, Pull(worker, iteration))
        for _ in servers:
            reply = await me.recv()
            assert isinstance(reply, Reply)
            assert reply.parameters is not None
            parameters[reply.shard] = reply.parameters
            versions[reply.shard] = reply.version
            clock = max(clock, reply.clock)
        me.iteration_finished(iteration, started, computed, me.now, passed.held, scheduler)
        iteration = max(iteration + 1, clock)
    for name in (*servers, SCHEDULER):
        me.send(name, Leave(worker))
