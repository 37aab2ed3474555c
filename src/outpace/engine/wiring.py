"""Which programs a configuration asks for: the same in every runtime."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from outpace.blocks.block import Block, Phantom, Value, whole
from outpace.cluster.run_times import Recorded, Regimes
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.optim import Sgd
from outpace.predict.fitting import Fitting
from outpace.predict.interface import Rule
from outpace.predict.models import load as load_model
from outpace.predict.recorded.table import Nodes, Seconds
from outpace.predict.rules.decisions.objective import Aim
from outpace.predict.rules.making import make_rule
from outpace.sync import (
    AtOnce,
    CutOff,
    Policy,
    Scale,
    SspTable,
)
from outpace.sync.parameter_block import PhantomBlock
from outpace.sync.programs.cached_table import OwnStep, cached_table_worker
from outpace.sync.programs.context import AbortableContext, ServerContext, WorkerContext
from outpace.sync.programs.cutoff import CutOffWorker
from outpace.sync.programs.global_barrier import global_barrier_worker
from outpace.sync.programs.parameter_server import parameter_server, parameter_server_worker
from outpace.sync.programs.partial_pull import partial_pull_worker
from outpace.sync.shard import Shard, ShardObserver
from outpace.tasks import Script

OrdinaryProgram: TypeAlias = Callable[[WorkerContext], Coroutine[Any, Any, None]]
WorkerProgram: TypeAlias = Callable[[AbortableContext], Coroutine[Any, Any, None]]
ServerProgram: TypeAlias = Callable[[ServerContext], Coroutine[Any, Any, None]]

_AIMS: Final[dict[str, Aim]] = {"iteration": "throughput", "run": "rate"}


def worker_program(experiment: Experiment) -> WorkerProgram:
    """What every worker of this run does."""
    program = _worker_program(experiment)
    return partial(_cut_off, program) if isinstance(experiment.sync, CutOff) else program


async def _cut_off(program: OrdinaryProgram, me: AbortableContext) -> None:
    await program(CutOffWorker(me))


def _worker_program(experiment: Experiment) -> OrdinaryProgram:
    if experiment.barrier == "global":
        return global_barrier_worker
    if isinstance(experiment.sync, SspTable):
        own_step = _own_step(experiment, experiment.sync.scale)
        return partial(cached_table_worker, staleness=experiment.sync.staleness, own_step=own_step)
    if experiment.pull is not None:
        return partial(partial_pull_worker, pull=experiment.pull)
    return parameter_server_worker


def server_program(experiment: Experiment) -> ServerProgram:
    """What every server does."""
    return partial(parameter_server, acknowledge=experiment.barrier == "global")


def server_policy(experiment: Experiment, policy: Policy) -> Policy:
    """By which a server's shard answers and advances, if this is what it follows."""
    return AtOnce(policy) if experiment.barrier == "global" else policy


def has_scheduler(experiment: Experiment) -> bool:
    """Is there somebody who decides for all servers at once?"""
    return experiment.barrier == "global" or isinstance(experiment.sync, CutOff)


def scheduler_shard(experiment: Experiment, observer: ShardObserver) -> Shard:
    """What the scheduler of a global barrier keeps: the progress of all, and no parameters.

    Its number is the one after the servers'. The observer hears of pulls alone, because the
    pushes there are reports of pushes.
    """
    block, policy = PhantomBlock(0), experiment.policies.initial()[0].policy
    return Shard(experiment.servers, block, experiment.workers, policy, _PullsAlone(observer))


def cut_off_rule(
    experiment: Experiment,
    sync: CutOff,
    *,
    say: Callable[[str], None],
    note: Callable[[str], None] = lambda _: None,
    fitting: Fitting | None = None,
    truth: Callable[[], Seconds] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Rule:
    """How long to wait in each iteration; `say` is told once if it cannot be followed.

    note: told what it does of its own accord. fitting: of a model without a file. truth: the
    run times of the next iteration, which only a simulation knows. clock: by which
    predictions take time (s). Raises ConfigError if there is no such rule, and for a
    model file that does not fit.
    """
    make = partial(
        make_rule,
        sync.model,
        sync.decision,
        node=_nodes(experiment, sync),
        fitting=fitting,
        share=sync.share,
        warmup=sync.iterations_for_all,
        samples=sync.samples,
        every=sync.every,
        aim=_AIMS[sync.objective],
        seed=experiment.seed,
        truth=truth,
        say=say,
        note=note,
        clock=clock,
    )
    if sync.file is None:
        return make()
    fitted = load_model(Path(sync.file))
    try:
        return make(fitted=fitted)
    except ConfigError as error:
        raise ConfigError(f"{sync.file}: {error}") from error


def _nodes(experiment: Experiment, sync: CutOff) -> Nodes:
    """Which workers share a machine. If nobody says, each has its own."""
    compute = experiment.compute
    per_node = sync.workers_per_node
    if per_node is None and isinstance(compute, Recorded):
        recorded = compute.nodes(experiment.workers)
        if recorded is not None:
            return recorded
    if per_node is None:
        per_node = compute.workers_per_node if isinstance(compute, Regimes) else 1
    return np.arange(experiment.workers) // per_node


def most_unanswered(experiment: Experiment) -> int:
    """How many pulls of one worker a server may owe it, if the worker keeps to its program."""
    return 1 if experiment.pull is None else experiment.pull.ahead


def most_pushes(experiment: Experiment) -> int:
    """How many pushes of one worker may come with nothing but pushes between them."""
    return experiment.sync.staleness + 1 if isinstance(experiment.sync, SspTable) else 1


def _own_step(experiment: Experiment, scale: Scale) -> OwnStep | None:
    """What servers do with one gradient; None if only they can, with what they keep."""
    optimizer = experiment.optimizer
    if isinstance(experiment.task, Script) or not isinstance(optimizer, Sgd):
        return None
    if optimizer != Sgd(lr=optimizer.lr):
        return None
    divisor = experiment.workers if scale is Scale.MEAN else 1
    alpha = -optimizer.lr / divisor

    def step(parameters: Block, gradient: Value) -> Block:
        old, change = whole(parameters), whole(gradient)
        if isinstance(old, Phantom) or isinstance(change, Phantom):
            return old
        return torch.add(old, change, alpha=alpha)

    return step


class _PullsAlone:
    """A `ShardObserver` that passes on what becomes of pulls."""

    def __init__(self, observer: ShardObserver) -> None:
        self.pull_answered = observer.pull_answered
        self.pull_abandoned = observer.pull_abandoned

    def push_settled(self, *_: object) -> None:
        pass

    def updated(self, *_: object) -> None:
        pass
