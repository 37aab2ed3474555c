"""Run times for virtual time, measured on this computer before the run.

They are measured one after the other, on one thread, while nothing else runs: the effect of
executors that compute several gradients at once does not show in them.
"""

from __future__ import annotations

import dataclasses
import time

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.tasks import Workload, gradient_of

_WARM_UP = 3  # gradients
_MEASURED: dict[tuple[object, ...], tuple[float, ...]] = {}  # so that compared variants agree


def calibrated(experiment: Experiment, workload: Workload) -> Experiment:
    """Return the experiment with its run times measured, if its configuration asks for that.

    They are measured once in a process for each task and batch size.

    Raises:
        ConfigError: if the task has no gradients.
        RunError: if the task raises.
    """
    compute = experiment.compute
    if not isinstance(compute, Measured) or compute.seconds:
        return experiment
    key = _key(experiment, compute)
    if key not in _MEASURED:
        _MEASURED[key] = _measured(workload, experiment.workers, compute.samples)
    return dataclasses.replace(
        experiment, compute=dataclasses.replace(compute, seconds=_MEASURED[key])
    )


def known_times(experiment: Experiment, compute: Measured) -> tuple[float, ...] | None:
    """Return the run times that were measured before for an experiment like this one, if any."""
    return _MEASURED.get(_key(experiment, compute))


def remember(experiment: Experiment) -> None:
    """Let experiments like this one use its measured run times, instead of measuring anew."""
    compute = experiment.compute
    if isinstance(compute, Measured) and compute.seconds:
        _MEASURED[_key(experiment, compute)] = compute.seconds


def _key(experiment: Experiment, compute: Measured) -> tuple[object, ...]:
    return repr(experiment.task), experiment.batch_size, experiment.seed, compute.samples


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
