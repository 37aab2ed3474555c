"""Finds values of an `Experiment` that contradict each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from outpace.cluster.laws import wrong_number_of_factors
from outpace.config.goals import Evaluate, Stop
from outpace.config.keys import FORWARD_SHARE, MACHINES, SERVICE_TIMES
from outpace.config.launchers import Ray
from outpace.optim import Sgd
from outpace.optim.python import PythonOptimizer
from outpace.sync.python import PythonStrategy
from outpace.tasks import Quadratic, Timing

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment

_LINKS: Final = 10**6  # most pairs of a worker and a server, which each worker waits for


def contradictions(experiment: Experiment, load: bool) -> Iterator[str]:
    """Yield what is wrong with an experiment, each problem with the key that it is about.

    Args:
        load: look into the user's files that it names, too.
    """
    yield from _with_task(experiment)
    if experiment.workers * experiment.servers > _LINKS:
        yield (
            f"workers, servers: {experiment.workers:,} workers times {experiment.servers:,} "
            f"servers must be at most {_LINKS:,}, the messages of one iteration"
        )
        return
    yield from experiment.policies.contradictions(load)
    yield from _of_run_times(experiment)
    is_known = load or not isinstance(experiment.sync, PythonStrategy)
    peers = experiment.peers if is_known else None
    if peers is None:
        yield from excluded(experiment, experiment.policies.exclusions(load))
        yield from _of_servers(experiment)
    else:
        yield from excluded(experiment, peers.exclusions(experiment.workers))
        if experiment.workers == 1:
            yield f"workers: {peers.kind} needs at least 2 workers, which average among themselves"
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
    is_script = experiment.has_script
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


def excluded(experiment: Experiment, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield those of these keys that are given, each with the reason against it."""
    for key, why in reasons.items():
        name, _, part = key.partition(".")
        value = getattr(experiment, name)
        if key == "sync":
            is_given = isinstance(value, tuple)
        elif part:
            entries = value if isinstance(value, tuple) else filter(None, (value,))
            is_given = any(getattr(each, part) not in (None, ()) for each in entries)
        else:
            is_given = value != _usual(experiment)[key]
        if is_given:
            yield f"{key}: {why}"


def _of_servers(experiment: Experiment) -> Iterator[str]:
    """Yield contradictions of keys about servers, whatever the policy is."""
    skip = experiment.skip
    push = None if skip is None else skip.push
    is_accumulated = push is not None and push.gradient == "accumulate"
    if is_accumulated and experiment.has_script:
        yield (
            "skip.push.gradient: accumulate needs a task: the optimizer of a script decides in "
            "each step which parameters have no gradient; use drop"
        )
    # A push leaves while backward still makes the parts of other servers. So nothing may need the
    # whole gradient before. What only the script knows, such as clipping, is found while it runs
    # (`engine.scripts.watched`).
    if experiment.overlap != "none" and experiment.non_finite != "stop":
        yield (
            "overlap: non_finite: refuse pushes a gradient only if all of it is finite, and parts "
            "leave before that is known: set non_finite: stop"
        )
    if experiment.overlap != "none" and skip is not None:
        yield "overlap: with skip a worker chooses whether to push when it has the whole gradient"


def _of_faults(experiment: Experiment) -> Iterator[str]:
    """Yield failures that cannot be simulated."""
    faults = experiment.faults
    if faults is None:
        return
    if experiment.has_script:
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
