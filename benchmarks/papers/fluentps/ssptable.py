"""SSPtable: stale synchronous parallel with tables that workers cache (Petuum, Bösen).

    sync: {kind: python, target: "ssptable.py:SspTable", arguments: {staleness: 3, scale: sum}}

A baseline of FluentPS (figures 1 and 7); Ho et al., NIPS 2013. In each iteration a worker pushes
its update to every server. A cached block has the clock that its server had when the block was
pulled. The block can be used for iteration i+1 if its clock is at least i+1−s; it may then lack
other workers' updates of up to s iterations. Otherwise the worker pulls, and the server answers
when its own clock is at least i+1−s. A worker sees its own updates in its cache at once
(read-my-writes). The last iteration pulls from all servers, so that all pushes of the worker have
arrived when it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, TypeAlias

from outpace.blocks.block import Block, Value, value_of
from outpace.optim import Optimizer, Sgd
from outpace.support.checks import require
from outpace.support.units import Time
from outpace.sync.decision import Decision
from outpace.sync.messages import Leave, Pull, Push, Rejoin, Reply
from outpace.sync.parameter_block import plus
from outpace.sync.policy import Apply, Buffer, Scale, ShardView, WirePolicy, bounded
from outpace.sync.programs.context import WorkerContext, WorkerProgram

_OwnStep: TypeAlias = Callable[[Block, Value], Block]  # parameters, gradient -> new parameters
_OWN: Final = "ssptable has separate workers, which pull what is too old"


@dataclass(frozen=True, slots=True)
class SspTable(WirePolicy):
    """SSP with a cache of parameters in each worker.

    Servers use the condition of SSP with a soft buffer: i < V + s, otherwise a pull is released
    at clock i−s+1. Updates are applied on arrival.

    Raises:
        ValueError: if the staleness is negative, or `scale` is neither mean nor sum.
    """

    staleness: int  # s: iterations of other workers that a cached block may lack
    scale: Scale = Scale.MEAN

    apply: ClassVar[Apply] = Apply.ON_ARRIVAL
    everywhere: ClassVar[str] = "ssptable has workers of its own"
    excludes: ClassVar[Mapping[str, str]] = {
        "pull": _OWN,
        "conditions.push": f"{_OWN}, and count on the pushes of all workers",
    }

    def __post_init__(self) -> None:
        require(self.staleness >= 0, "staleness", "at least 0", self.staleness)
        # A worker applies its own updates one by one, before their staleness is known.
        require(self.scale in (Scale.MEAN, Scale.SUM), "scale", "mean or sum", self.scale)

    @property
    def kind(self) -> str:
        return "ssptable"

    @property
    def pushes_in_a_row(self) -> int:
        return self.staleness + 1

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return bounded(pull, view, self.staleness, Buffer.SOFT)

    def worker_program(self, workers: int, optimizer: Optimizer | None) -> WorkerProgram:
        divisor = workers if self.scale == Scale.MEAN else 1
        own_step = _own_step(optimizer, divisor)
        return partial(_cached_table_worker, staleness=self.staleness, own_step=own_step)


async def _cached_table_worker(
    me: WorkerContext, *, staleness: int, own_step: _OwnStep | None
) -> None:
    """Compute, push, and pull blocks that are too old, until `me.must_stop`.

    own_step: applies a gradient to a cached block as the server will, without changing its
    arguments. None: the worker does not see its own updates until it pulls.
    """
    worker, servers = me.worker, me.servers
    parameters = me.initial_parameters()
    versions, clocks = [0] * len(servers), [0] * len(servers)

    async def answers(number: int) -> tuple[Time, int]:
        """Take this many blocks; return how long the last one was held, and its server."""
        held, server = 0, 0
        for _ in range(number):
            reply = await me.recv()
            assert isinstance(reply, Reply)
            assert reply.parameters is not None
            # The server applied this worker's pushes before it answered the pull that followed.
            held, server = reply.held, reply.shard
            parameters[server] = reply.parameters
            versions[server], clocks[server] = reply.version, reply.clock
        return held, server

    iteration = me.first_iteration or 0
    if me.first_iteration is not None:
        for name in servers:
            me.send(name, Rejoin(worker, iteration))
    if iteration > 0:
        before = iteration - 1
        for name in servers:
            me.send(name, Pull(worker, before, me.coin(before)))
        await answers(len(servers))
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.execute(parameters, iteration)
        computed = me.now
        coin, last = me.coin(iteration), me.must_stop(iteration + 1)
        pulled = 0
        for server, name in enumerate(servers):
            block = gradient[server]
            if own_step is not None and block is not None:
                block = value_of(block)  # a deferred gradient can be read only once
                parameters[server] = own_step(parameters[server], block)
            push = Push(worker, iteration, versions[server], block)
            if last or clocks[server] < iteration + 1 - staleness:
                pulled += 1
                me.send(name, push, Pull(worker, iteration, coin))
            else:
                me.send(name, push)
        held, answered = await answers(pulled)
        me.iteration_finished(iteration, started, computed, me.now, held, answered)
        iteration += 1
    for name in servers:
        me.send(name, Leave(worker))


def _own_step(optimizer: Optimizer | None, divisor: int) -> _OwnStep | None:
    """Return the servers' step with one gradient; None unless they use plain SGD."""
    if not isinstance(optimizer, Sgd) or optimizer != Sgd(lr=optimizer.lr):
        return None
    alpha = -optimizer.lr / divisor
    return lambda parameters, gradient: plus(parameters, alpha, gradient)
