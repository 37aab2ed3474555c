"""The programs and limits of a run with servers, the same in every runtime."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from outpace.blocks.narrowing import LastNarrowed
from outpace.config.experiment import Experiment
from outpace.sync import Policy
from outpace.sync.observer import ShardObserver
from outpace.sync.parameter_block import PhantomBlock
from outpace.sync.programs.context import WorkerContext, WorkerProgram
from outpace.sync.programs.cutoff import CutOffWorker
from outpace.sync.programs.narrowing import NarrowingWorker
from outpace.sync.programs.overlapping import overlapping_worker
from outpace.sync.programs.parameter_server import (
    ServerContext,
    parameter_server,
    parameter_server_worker,
)
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.programs.skipping import SkippingWorker
from outpace.sync.shard import Shard

ServerProgram: TypeAlias = Callable[[ServerContext], Coroutine[Any, Any, None]]


def worker_program(experiment: Experiment) -> WorkerProgram:
    """Return the program of the workers."""
    strategy, skip = experiment.policies.strategy, experiment.skip
    pull = experiment.pull or PartialPull(quorum_percent=100)
    optimizer = None if experiment.has_script else experiment.optimizer
    program: WorkerProgram | None = strategy.worker_program(experiment.workers, optimizer)
    if experiment.overlap != "none":
        program = partial(overlapping_worker, pull=pull)
    elif program is None:
        skipped = None if skip is None else skip.pull
        program = partial(parameter_server_worker, pull=pull, skip=skipped, seed=experiment.seed)
    contexts: list[Callable[[WorkerContext], WorkerContext]] = []  # innermost first
    if is_narrow(experiment):
        contexts.append(NarrowingWorker)
    if strategy.cut_off is not None:
        contexts.append(CutOffWorker)
    if skip is not None and skip.push is not None:
        contexts.append(partial(SkippingWorker, skip=skip.push, seed=experiment.seed))

    def in_contexts(me: WorkerContext) -> Coroutine[Any, Any, None]:
        for context in contexts:
            me = context(me)
        return program(me)

    return in_contexts


def is_narrow(experiment: Experiment) -> bool:
    """True if gradients and parameters are sent in bfloat16 (`sync.wire`)."""
    return experiment.policies.strategy.wire == "bf16"


def server_program(
    experiment: Experiment, after_each: Callable[[], None] | None = None
) -> ServerProgram:
    """Return the program of a server.

    after_each: see `parameter_server`.
    """
    return partial(
        parameter_server,
        acknowledge=experiment.policies.strategy.acknowledges,
        after_each=after_each,
        on_the_wire=LastNarrowed() if is_narrow(experiment) else None,
    )


def is_exact(experiment: Experiment) -> bool:
    """True if all shards can be saved between the same two iterations (`sync.checkpoint.cuts`).

    This is possible if no worker begins an iteration before all servers have finished the previous
    one. Without servers, it is possible if no worker begins an iteration before all workers have
    averaged in the previous one.
    """
    if experiment.peers is not None:
        return experiment.peers.lockstep
    policies, pull, skip = experiment.policies, experiment.pull, experiment.skip
    if any(each.pull or each.push for each in experiment.conditions):
        return False
    if pull is not None and pull.quorum(experiment.servers) < experiment.servers:
        return False
    if skip is not None and skip.pull is not None:
        return False
    followed = [each.base for each in policies.initial()]
    followed += [policy for _, _, policy in policies.later()]
    return all(map(in_lockstep, followed))


def in_lockstep(policy: Policy) -> bool:
    """True if every worker waits for all servers to finish an iteration; see `Policy.lockstep`."""
    return (policy.scheduler or policy).lockstep


def pushes_in_a_row(experiment: Experiment) -> int:
    """Return the number of pushes that a worker may send to a server without a pull in between."""
    skipped = 0 if experiment.skip is None else experiment.skip.pulls_in_a_row
    return experiment.policies.strategy.pushes_in_a_row + skipped


def most_unanswered(experiment: Experiment) -> int:
    """Return the number of pulls of one worker that a server may leave unanswered."""
    return 1 if experiment.pull is None else experiment.pull.ahead


def has_scheduler(experiment: Experiment) -> bool:
    """True if a scheduler decides for all servers at once."""
    strategy = experiment.policies.strategy
    return strategy.scheduler is not None or strategy.cut_off is not None


def leaves_behind(experiment: Experiment) -> bool:
    """True if an iteration may be finished without a worker, which then skips it.

    Only in this case workers tell the servers when they wait in a collective of their script.
    Otherwise all workers take the same number of steps, and no worker waits for one that is in a
    later step.
    """
    if any(each.push is not None for each in experiment.conditions):
        return True
    policies = [followed.policy for followed in experiment.policies.initial()]
    policies += [policy for _, _, policy in experiment.policies.later()]
    return any(policy.leaves_behind for policy in policies)


def scheduler_number(experiment: Experiment) -> int | None:
    """Return the number of the scheduler's shard, which follows the servers' numbers.

    It is None if the run has no `Policy.scheduler`. A scheduler that cuts off iterations has no
    shard.
    """
    return None if experiment.policies.strategy.scheduler is None else experiment.servers


def scheduler_shard(experiment: Experiment, observer: ShardObserver) -> Shard | None:
    """Return the shard of the `Policy.scheduler`; None if there is none.

    The shard records the progress of all workers and has no parameters. Its number follows the
    servers' numbers. The observer receives only pulls, because pushes to this shard carry no
    gradients and only report progress.
    """
    policy = experiment.policies.initial()[0].scheduler
    if policy is None:
        return None
    block, pulls = PhantomBlock(0), _PullsOnly(observer)
    return Shard(experiment.servers, block, experiment.workers, policy, pulls)


class _PullsOnly:
    """A `ShardObserver` that passes on only the outcomes of pulls."""

    def __init__(self, observer: ShardObserver) -> None:
        self.pull_answered = observer.pull_answered
        self.pull_abandoned = observer.pull_abandoned

    def push_settled(self, *_: object) -> None:
        pass
