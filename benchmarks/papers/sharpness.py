"""Sharpness of a loss, and stability of delayed gradient descent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from outpace.config.experiment import Experiment
from outpace.support.repeatable import one_thread_own_randomness
from outpace.tasks import Task
from outpace.tasks.supervised import SupervisedWorkload

_STEPS = 12
_SAMPLES = 1000


def initial_sharpness(experiment: Experiment) -> float:
    """Return the sharpness of the experiment's loss at its initial parameters."""
    with one_thread_own_randomness():
        workload = experiment.task.workload(1, _SAMPLES, experiment.seed)
        assert isinstance(workload, SupervisedWorkload)
        return sharpness(workload.task, workload.samples_of(0, 0))


def sharpness(task: Task, samples: torch.Tensor) -> float:
    """Return the largest eigenvalue of the Hessian of the mean loss of these training samples.

    It is taken at the model's parameters, by power iteration. samples: indices, int64.
    """
    assert isinstance(task.train, tuple)
    inputs, targets = (data[samples] for data in task.train)
    parameters = [p for p in task.model.parameters() if p.requires_grad]
    loss = task.loss(task.model(inputs), targets)
    gradient = torch.autograd.grad(loss, parameters, create_graph=True)
    generator = torch.Generator().manual_seed(0)
    vector = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    value = 0.0
    for _ in range(_STEPS):
        norm = _dot(vector, vector).sqrt()
        vector = [part / norm for part in vector]
        along = _dot(gradient, vector)
        after = torch.autograd.grad(along, parameters, retain_graph=True)
        value, vector = _dot(after, vector).item(), list(after)
    return value


def _dot(these: Sequence[torch.Tensor], those: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([(a * b).sum() for a, b in zip(these, those, strict=True)]).sum()


def bound(delay: int) -> float:
    """Return the largest stable rate times eigenvalue if gradients are `delay` updates old."""
    return 2 * math.sin(math.pi / (2 * (2 * delay + 1)))


def growth(rate: float, delay: int) -> float:
    """Return by which factor w ← w − rate·w(delay updates ago) grows per update in the long run."""
    polynomial = np.zeros(delay + 2)
    polynomial[0], polynomial[1] = 1, -1
    polynomial[-1] += rate
    return float(np.abs(np.roots(polynomial)).max())
