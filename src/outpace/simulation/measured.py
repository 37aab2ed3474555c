"""Run times for virtual time, measured on this computer before the run.

Serially, one thread, nothing else going on: what executors do later, at the same time,
does not show in them.
"""

from __future__ import annotations

import dataclasses
import time

from outpace.cluster import Measured
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.tasks import Workload, gradient_of

_WARM_UP = 3  # gradients
_MEASURED: dict[tuple[object, ...], tuple[float, ...]] = {}  # variants that are compared agree


def calibrated(experiment: Experiment, workload: Workload) -> Experiment:
    """The experiment with its run times measured, if they are to be.

    Measured once in a process for each task and batch size. Raises ConfigError if the task
    has no gradients, RunError if it raises.
    """
    compute = experiment.compute
    if not isinstance(compute, Measured) or compute.seconds:
        return experiment
    key = repr(experiment.task), experiment.batch_size, experiment.seed, compute.samples
    if key not in _MEASURED:
        _MEASURED[key] = _measured(workload, experiment.workers, compute.samples)
    return dataclasses.replace(
        experiment, compute=dataclasses.replace(compute, seconds=_MEASURED[key])
    )


def _measured(workload: Workload, workers: int, samples: int) -> tuple[float, ...]:
    parameters = workload.initial_parameters()
    seconds = []
    for n in range(_WARM_UP + samples):
        iteration, worker = divmod(n, workers)
        started = time.perf_counter()
        loss, _ = gradient_of(workload, parameters, worker, iteration)
        seconds.append(time.perf_counter() - started)
        if loss is None:
            raise ConfigError("compute: this task computes nothing that could be measured")
    return tuple(seconds[_WARM_UP:])
