"""The parameter-server program (FluentPS, algorithm 1), for any policy.

A worker pushes its gradient of iteration i to every server and pulls; each server answers
according to its own condition. When all servers have answered, or enough of them (see
`partial_pull`), the worker continues with iteration max(i+1, V): it skips iterations that the
shards have finished without it. A worker may also choose not to pull (see `skipping`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from outpace.blocks.block import Block, Value
from outpace.errors import ProtocolError
from outpace.support.units import Time, seconds
from outpace.sync.messages import (
    NO_SERVER,
    Ack,
    Leave,
    Message,
    Pull,
    Push,
    Rejoin,
    Reply,
    worker_name,
)
from outpace.sync.programs.context import Messages, WorkerContext
from outpace.sync.programs.partial_pull import PartialPull, Puller
from outpace.sync.programs.skipping import Choice, SkippedPull
from outpace.sync.shard import Shard


async def parameter_server_worker(
    me: WorkerContext, pull: PartialPull, skip: SkippedPull | None = None, seed: int = 0
) -> None:
    """Compute, push, pull, continue when enough servers have answered, until `me.must_stop`.

    skip: when not to pull. seed: seed of the run, for random skips.
    """
    worker, servers = me.worker, me.servers
    puller = Puller(me, pull)
    choice = None if skip is None else Choice(skip, "pull", seed, worker)
    iteration = await puller.begin()
    unpulled = -1  # the last iteration, if its pull was skipped
    while not me.must_stop(iteration):
        started, versions = me.now, tuple(puller.versions)
        gradient = await me.execute(puller.parameters, iteration)
        computed, coin = me.now, me.coin(iteration)
        if choice is not None and choice.skips(iteration):
            for server, name in enumerate(servers):
                me.send(name, Push(worker, iteration, versions[server], gradient[server]))
            puller.look()
            me.iteration_finished(iteration, started, computed, me.now, 0, NO_SERVER)
            unpulled, iteration = iteration, max(iteration + 1, puller.clock)
            continue
        unpulled = -1
        puller.asked(iteration)
        request = Pull(worker, iteration, coin)
        # Push and pull server by server, so that one server can answer while messages to others are
        # sent.
        for name, version, block in zip(servers, versions, gradient, strict=True):
            me.send(name, Push(worker, iteration, version, block), request)
        await puller.enough()
        me.iteration_finished(iteration, started, computed, me.now, puller.held, puller.last)
        iteration = max(iteration + 1, puller.clock)
    if unpulled >= 0:
        puller.asked(unpulled)
        for name in servers:
            me.send(name, Pull(worker, unpulled, me.coin(unpulled)))
    await puller.everything()
    for name in servers:
        me.send(name, Leave(worker))


class Clock(Protocol):
    """Has the time in ns since the start of the run."""

    @property
    def now(self) -> Time: ...


class ServerContext(Messages, Protocol):
    """The context of a server's program."""

    @property
    def clock(self) -> Clock: ...

    @property
    def shard(self) -> Shard: ...

    def refuse(self, message: Message, error: ProtocolError) -> None:
        """Ignore the sender of an illegal message from now on, or raise the error."""


async def parameter_server(
    me: ServerContext,
    *,
    acknowledge: bool = False,
    after_each: Callable[[], None] | None = None,
    on_the_wire: Callable[[Value], Block] | None = None,
) -> None:
    """Pass every message to the shard and send the replies. Never returns.

    acknowledge: True to confirm each push, and each Rejoin. after_each: called after each message,
    before any worker knows that its message has been processed (`Cuts.look`). on_the_wire: converts
    parameters before they are sent; None: they are sent unchanged.
    """
    shard, clock = me.shard, me.clock
    while True:
        deadline = shard.next_deadline
        message: Message | None
        if deadline is None:
            message = await me.recv()
        else:
            message = await me.recv_within(seconds(max(0, deadline - clock.now)))
        try:
            now = clock.now
            replies = shard.on_time(now) if message is None else shard.receive(message, now)
        except ProtocolError as error:  # the shard has not changed
            assert message is not None
            me.refuse(message, error)
            continue
        if after_each is not None:
            after_each()
        if acknowledge and isinstance(message, Push | Rejoin):
            iteration = message.iteration if isinstance(message, Push) else message.first
            ack = Ack(shard.index, message.worker, iteration)
            me.send(worker_name(message.worker), ack)
        for reply in replies if len(replies) < 2 else _one_each(replies):
            parameters = shard.read()
            reply.parameters = parameters if on_the_wire is None else on_the_wire(parameters)
            me.send(worker_name(reply.worker), reply)


def _one_each(replies: Sequence[Reply]) -> Collection[Reply]:
    """Return, for each worker, the reply to its latest pull, which also answers earlier pulls.

    A worker that does not wait for all servers may have several pulls answered at once, all
    with the same parameters.
    """
    latest: dict[int, Reply] = {}
    for reply in replies:
        known = latest.get(reply.worker)
        if known is None or known.iteration < reply.iteration:
            latest[reply.worker] = reply
    return latest.values()
