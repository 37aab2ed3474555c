"""A global barrier, as in PS-Lite: a baseline of FluentPS (figure 6).

    sync: {kind: python, target: "global_barrier.py:behind_barrier", arguments: {kind: bsp}}

A worker pushes to all servers, waits until each has acknowledged the push, and reports to the
scheduler. The scheduler sees whole iterations of all servers together. When the strategy's
pull condition holds for them, it lets the worker through. Only then does the worker pull, and
the servers answer at once. So no server's answer overlaps with
another server's pushes, and the messages to and from the scheduler take extra time.

The scheduler is a shard without parameters, behind the same program as a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from outpace.blocks.narrowing import Wire
from outpace.config.reading import sync_from
from outpace.optim import Optimizer
from outpace.support.units import Time
from outpace.sync.assignment import traits_of
from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import SCHEDULER, Ack, Leave, Pull, Push, Rejoin, Reply
from outpace.sync.policy import Apply, Policy, Scale, ShardView
from outpace.sync.programs.context import WorkerContext, WorkerProgram

_ONE: Final = (
    "with a global barrier the scheduler follows one policy, for all servers and the whole run"
)


@dataclass(frozen=True, slots=True)
class GlobalBarrier(Policy):
    """Behaves as `policy` does, except that the scheduler applies its pull condition.

    Servers answer every pull at once, because the scheduler has already let the worker through.
    """

    policy: Policy

    acknowledges: ClassVar[bool] = True
    everywhere: ClassVar[str] = _ONE
    excludes: ClassVar[Mapping[str, str]] = {
        "sync": _ONE,
        "sync_changes": _ONE,
        "conditions": _ONE,
        "pull": (
            "with a global barrier a worker pulls when all servers have all it waits for, and "
            "they answer at once: leave out one of the two"
        ),
    }

    @property
    def kind(self) -> str:
        return self.policy.kind

    @property
    def apply(self) -> Apply:
        return self.policy.apply

    @property
    def scale(self) -> Scale:
        return self.policy.scale

    @property
    def wire(self) -> Wire:
        return self.policy.wire

    @property
    def leaves_behind(self) -> bool:
        return self.policy.leaves_behind

    @property
    def scheduler(self) -> Policy:
        return self.policy

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return Decision(None, Reason.UNBOUNDED, pull.iteration - view.clock)

    def patience_s(self, view: ShardView) -> float:
        return self.policy.patience_s(view)

    def worker_program(self, workers: int, optimizer: Optimizer | None) -> WorkerProgram:
        return _global_barrier_worker

    def problems(self, workers: int) -> Iterator[str]:
        yield from self.policy.problems(workers)
        if self.policy.uses_significance:
            yield "alpha: significance needs gradients, and the global scheduler sees none"


def behind_barrier(kind: str, **options: Any) -> GlobalBarrier:
    """Return the strategy of this kind, with its options, behind a global barrier."""
    return GlobalBarrier(traits_of(sync_from({"kind": kind, **options}, "arguments")))


async def _global_barrier_worker(me: WorkerContext) -> None:
    """Compute, push, report, pull, until `me.must_stop`."""
    worker, servers = me.worker, me.servers
    scheduler = len(servers)  # its number follows those of the shards
    parameters = me.initial_parameters()
    versions = [0] * scheduler

    async def confirmations() -> None:
        """Wait until all servers have processed what was sent last."""
        for _ in servers:
            ack = await me.recv()
            assert isinstance(ack, Ack)

    async def pull(iteration: int, *report: Push) -> tuple[int, Time]:
        """Wait for the scheduler, then pull; return the highest clock, and how long it held."""
        me.send(SCHEDULER, *report, Pull(worker, iteration, me.coin(iteration)))
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
        return clock, passed.held

    iteration = me.first_iteration or 0
    if me.first_iteration is not None:
        # With it, the scheduler may let others through: the servers must have it first.
        for name in servers:
            me.send(name, Rejoin(worker, iteration))
        await confirmations()
        me.send(SCHEDULER, Rejoin(worker, iteration))
    if iteration > 0:
        clock, _ = await pull(iteration - 1)
        iteration = max(iteration, clock)
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.execute(parameters, iteration)
        computed = me.now
        for server, name in enumerate(servers):
            me.send(name, Push(worker, iteration, versions[server], gradient[server]))
        await confirmations()
        # No gradient: the scheduler needs only the worker's progress.
        clock, held = await pull(iteration, Push(worker, iteration, 0))
        me.iteration_finished(iteration, started, computed, me.now, held, scheduler)
        iteration = max(iteration + 1, clock)
    for name in (*servers, SCHEDULER):
        me.send(name, Leave(worker))
