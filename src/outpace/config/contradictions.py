"""Finds values of an `Experiment` that contradict each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from outpace.cluster.laws import wrong_number_of_factors
from outpace.config.goals import Evaluate, Stop
from outpace.config.keys import FORWARD_SHARE, MACHINES, MOST_NODES, SERVICE_TIMES
from outpace.config.launchers import Ray
from outpace.config.overlap import why_not_in_parts
from outpace.optim import Sgd
from outpace.optim.python import PythonOptimizer
from outpace.sync import PeerStrategy
from outpace.sync.assignment import without_servers
from outpace.sync.programs.skipping import Skips
from outpace.sync.python import PythonStrategy
from outpace.tasks import Quadratic, Script, Timing

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment

_OF_SERVERS: Final = (
    "servers",
    "sync_changes",
    "conditions",
    "colocate",
    "pull",
    "skip",
    *SERVICE_TIMES,
    "service_size",
    "slicing",
    "overlap",
    "on_server_loss",
)
_LINKS: Final = 10**6  # most pairs of a worker and a server, which each worker waits for


def contradictions(experiment: Experiment, load: bool) -> Iterator[str]:
    """Yield what is wrong with an experiment, each problem with the key that it is about.

    Args:
        load: look into the user's files that it names, too.
    """
    yield from _with_task(experiment)
    if not all(0 < getattr(experiment, key) <= MOST_NODES for key in MACHINES):
        return
    if experiment.workers * experiment.servers > _LINKS:
        yield (
            f"workers, servers: {experiment.workers:,} workers times {experiment.servers:,} "
            f"servers must be at most {_LINKS:,}, the messages of one iteration"
        )
        return
    yield from experiment.policies.contradictions(load)
    yield from _of_run_times(experiment)
    is_known = load or not isinstance(experiment.sync, PythonStrategy)
    if is_known and experiment.peers is not None:
        yield from _without_servers(experiment, experiment.peers)
    else:
        yield from _excluded(experiment, load)
    if is_known:
        yield from _of_faults(experiment)
    yield from _of_service_times(experiment)
    yield from _of_elastic(experiment)
    if experiment.network is not None and is_known:
        try:
            experiment.network.require_machines(experiment.machines)
        except ValueError as error:
            yield str(error)


def _with_task(experiment: Experiment) -> Iterator[str]:
    """Yield keys that do not fit the task, or say nothing about the end of the run."""
    task, stop, target = experiment.task, experiment.stop, experiment.target
    is_script = isinstance(task, Script)
    if stop == Stop() and not is_script:
        yield "stop: needs at least one of iterations, virtual_time_s, target_accuracy"
    if is_script:
        yield from _left_to_the_script(experiment)
    else:
        if experiment.evaluation_time is not None:
            yield "evaluation_time: only a script evaluates its model in a worker's time: remove it"
        if experiment.forward_share != FORWARD_SHARE and experiment.overlap == "none":
            yield (
                "forward_share: only scripts have gradient buckets: remove it, or set "
                "overlap: backward"
            )
    if isinstance(task, Timing | Quadratic):
        for key in experiment.accuracies:
            yield f"{key}: the task {task.kind!r} has no accuracy"
    if isinstance(task, Timing) and target is not None and target.loss:
        yield "target.loss: the task 'timing' has no loss"
    only_target = (
        stop.target_accuracy is not None and stop.iterations is None and stop.virtual_time_s is None
    )
    if only_target and experiment.evaluate == Evaluate() and not is_script:
        yield (
            "stop.target_accuracy alone would never be checked: "
            "set evaluate.every_updates or another stop"
        )


def _left_to_the_script(experiment: Experiment) -> Iterator[str]:
    """Yield keys that have no meaning for a script."""
    if experiment.batch_size != 32:
        yield "batch_size: a script makes its own batches"
    if experiment.evaluate != Evaluate():
        yield "evaluate: a script evaluates its model itself, and logs it with outpace.log"
    optimizer = experiment.optimizer
    if not isinstance(optimizer, PythonOptimizer) and optimizer != Sgd():
        yield "optimizer: a script brings its own (only kind: python can replace it)"


def _of_run_times(experiment: Experiment) -> Iterator[str]:
    """Yield workers and factors of the law of run times that are not in the run."""
    compute, workers = experiment.compute, experiment.workers
    slow = () if compute is None else compute.slow
    for worker in (worker for period in slow for worker in period.workers):
        if worker >= workers:
            yield f"compute.slow.workers must be from 0 to {workers - 1}, not {worker}"
    factors = getattr(compute, "factors", ())
    if factors and len(factors) != workers:
        yield wrong_number_of_factors(len(factors), workers)


def _without_servers(experiment: Experiment, sync: PeerStrategy) -> Iterator[str]:
    """Yield keys that a strategy without servers cannot have."""
    none, usual = without_servers(sync), _usual(experiment)
    for key in _OF_SERVERS:
        if getattr(experiment, key) != usual[key]:
            yield f"{key}: {none}: leave it out; a variant with servers can have it"
    if experiment.network is not None and experiment.network.delays:
        yield f"network.delays: {none}, so no push, pull or reply can be late"
    if experiment.checkpoint is not None and not sync.can_be_saved:
        yield (
            f"checkpoint: what the workers of {sync.kind} keep beside their models cannot be "
            "saved yet; leave it out"
        )
    if experiment.workers == 1:
        yield f"workers: {sync.kind} needs at least 2 workers, which average among themselves"


def _excluded(experiment: Experiment, load: bool) -> Iterator[str]:
    """Yield keys that cannot be combined with the servers' policies."""
    usual = _usual(experiment)
    for key, why in experiment.policies.excludes(load).items():
        if key == "sync":
            is_given = isinstance(experiment.sync, tuple)
        elif key.startswith("conditions."):
            which = key.removeprefix("conditions.")
            is_given = any(getattr(each, which) is not None for each in experiment.conditions)
        else:
            is_given = getattr(experiment, key) != usual[key]
        if is_given:
            yield f"{key}: {why}"
    if experiment.skip is not None:
        yield from _unskippable(experiment, experiment.skip, load)
    if experiment.overlap != "none":
        yield from why_not_in_parts(experiment, load)


def _unskippable(experiment: Experiment, skip: Skips, load: bool) -> Iterator[str]:
    """Yield why workers cannot skip these messages."""
    accumulates = skip.push is not None and skip.push.gradient == "accumulate"
    if accumulates and isinstance(experiment.task, Script):
        yield (
            "skip.push.gradient: accumulate needs a task: the optimizer of a script decides in "
            "each step which parameters have no gradient; use drop"
        )
    if skip.pull is None:
        return
    for policy in experiment.policies.traits(load):
        if policy.cut_off is not None:
            yield (
                f"skip.pull: with {policy.kind} all workers compute the same iteration, so "
                "none may begin the next one without an answer"
            )
        elif policy.worker_program(experiment.workers, None) is not None:
            yield f"skip.pull: {policy.kind} has workers of its own, which decide when to pull"


def _of_faults(experiment: Experiment) -> Iterator[str]:
    """Yield failures that cannot be simulated."""
    faults = experiment.faults
    if faults is None:
        return
    if isinstance(experiment.task, Script):
        yield (
            "faults: failures of scripts are not simulated: calibrate a real run of the script "
            "(outpace calibrate RUN -o cluster.yaml), and simulate task: {kind: timing, "
            "parameters: N} with --cluster cluster.yaml; N is script.parameters in its summary.json"
        )
    yield from faults.contradictions(experiment.workers, experiment.servers_in_run)
    if experiment.on_server_loss == "continue":
        yield (
            "on_server_loss: continue is for real runs: in virtual time all servers begin again, "
            "so use restart"
        )


def _of_elastic(experiment: Experiment) -> Iterator[str]:
    """Yield numbers at the start that are not within the bounds, and other contradictions."""
    launcher = experiment.launcher
    elastic = launcher.elastic if isinstance(launcher, Ray) else None
    if elastic is None:
        return
    if experiment.on_worker_loss != "restart":
        yield (
            "launcher.elastic: workers that are lost with their node come back where there is "
            f"room, so on_worker_loss must be restart, not {experiment.on_worker_loss}"
        )
    for key in MACHINES:
        bounds, count = getattr(elastic, key), getattr(experiment, key)
        is_range = len(bounds) == 2 and bounds[0] <= bounds[1]
        if is_range and not bounds[0] <= count <= bounds[1]:
            yield (
                f"launcher.elastic.{key}: {key}, the number at the start, must be from "
                f"{bounds[0]} to {bounds[1]}, not {count}"
            )


def _of_service_times(experiment: Experiment) -> Iterator[str]:
    """Yield parts of laws of run times that a law of another time cannot have."""
    for key in (*SERVICE_TIMES, "evaluation_time"):
        law = getattr(experiment, key)
        if law is None:
            continue
        if law.errors is not None:
            yield f"{key}.errors: only the law of run times can be drawn within its errors"
        if key == "evaluation_time":
            if law.worker_cv or law.slow:
                yield f"{key}: worker_cv and slow are for run times; factors are possible"
            if law.factors and len(law.factors) != experiment.workers:
                yield wrong_number_of_factors(len(law.factors), experiment.workers, key)
        elif law.worker_cv or law.slow:
            yield f"{key}: worker_cv and slow are for workers; servers may have factors"
        elif law.factors and len(law.factors) != experiment.servers:
            yield (
                f"{key}.factors must be one for each of the {experiment.servers} servers, "
                f"not {len(law.factors)}"
            )


def _usual(experiment: Experiment) -> dict[str, Any]:
    """Return the defaults of an experiment by key."""
    return {entry.name: entry.default for entry in dataclasses.fields(experiment)}
