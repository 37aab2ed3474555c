"""Run times for virtual time, measured on this computer before the run.

They are measured one after the other, on one thread, while nothing else runs. So they do not
contain the effect of executors that compute several gradients at once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.tasks import Workload, gradient_of
from outpace.tasks.kinds import PythonTask, Script, TaskKind

_WARM_UP = 3  # number of gradients
# so that compared variants have the same times
_MEASURED: dict[tuple[object, ...], tuple[float, ...]] = {}


def with_measured_times(
    experiment: Experiment, measure: Callable[[Experiment, int], tuple[float, ...]]
) -> Experiment:
    """Return the experiment with its run times measured, if its configuration asks for it.

    A process measures them once for each task, content of the task's file, and batch size.

    Args:
        measure: returns the seconds of a number of gradients. Its errors are raised.
    """
    compute = experiment.compute
    if not isinstance(compute, Measured) or compute.seconds:
        return experiment
    key = _key(experiment, compute)
    if key not in _MEASURED:
        _MEASURED[key] = measure(experiment, compute.samples)
    return dataclasses.replace(
        experiment, compute=dataclasses.replace(compute, seconds=_MEASURED[key])
    )


def remember(experiment: Experiment) -> None:
    """Let experiments like this one use its measured times, instead of measuring again."""
    compute = experiment.compute
    if isinstance(compute, Measured) and compute.seconds:
        _MEASURED[_key(experiment, compute)] = compute.seconds


def _key(experiment: Experiment, compute: Measured) -> tuple[object, ...]:
    task = experiment.task
    return repr(task), _source(task), experiment.batch_size, experiment.seed, compute.samples


def _source(task: TaskKind) -> bytes:
    """Return the content of a user's file, because it may change between two runs of a process."""
    named = ""
    if isinstance(task, Script):
        named = task.path
    elif isinstance(task, PythonTask):
        named = task.target.rpartition(":")[0]
    return Path(named).read_bytes() if Path(named).is_file() else b""


def times_of_task(workload: Workload, experiment: Experiment, samples: int) -> tuple[float, ...]:
    """Return the seconds of a number of gradients of a task.

    Raises:
        ConfigError: if the task has no gradients.
        RunError: if the task raises.
    """
    parameters = workload.initial_parameters()
    seconds = []
    for n in range(_WARM_UP + samples):
        iteration, worker = divmod(n, experiment.workers)
        started = time.perf_counter()
        loss, _ = gradient_of(workload, parameters, worker, iteration)
        seconds.append(time.perf_counter() - started)
        if loss is None:
            raise ConfigError("compute: this task computes nothing that could be measured")
    return tuple(seconds[_WARM_UP:])
