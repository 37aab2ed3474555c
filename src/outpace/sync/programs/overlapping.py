"""The parameter-server program of a worker that pushes during the backward pass.

It sends the same messages to each server as `parameter_server_worker`, in the same order. But the
push to a server, and the pull after it, are sent as soon as the server's part of the gradient is
complete. The server adds this part, and may answer, while the backward pass computes the parts of
other servers.
"""

from __future__ import annotations

from outpace.blocks.block import Block
from outpace.sync.messages import Leave, Pull, Push
from outpace.sync.programs.context import WorkerContext
from outpace.sync.programs.partial_pull import PartialPull, Puller


async def overlapping_worker(me: WorkerContext, pull: PartialPull) -> None:
    """Compute, push each part when it is complete, continue when enough servers have answered."""
    worker, servers = me.worker, me.servers
    puller = Puller(me, pull)
    iteration = await puller.begin()
    while not me.must_stop(iteration):
        started, versions, coin = me.now, tuple(puller.versions), me.coin(iteration)
        puller.asked(iteration)

        def send(
            server: int,
            gradient: Block | None,
            iteration: int = iteration,
            versions: tuple[int, ...] = versions,
            coin: float = coin,
        ) -> None:
            push = Push(worker, iteration, versions[server], gradient)
            me.send(servers[server], push, Pull(worker, iteration, coin))

        await me.execute_in_parts(puller.parameters, iteration, send)
        computed = me.now
        await puller.enough()
        me.iteration_finished(iteration, started, computed, me.now, puller.held, puller.last)
        iteration = max(iteration + 1, puller.clock)
    await puller.everything()
    for name in servers:
        me.send(name, Leave(worker))
