"""LARS on servers against its formula, layer by layer, in one process."""

from __future__ import annotations

import pytest
import torch
from tests.support.paths import SUPPORT

from outpace.experiment.running import simulate
from outpace.support.user_code import load_target
from outpace.tasks.samples import Sampler

SEED, BATCH, WORKERS, ITERATIONS = 3, 16, 4, 12
DOUBLE = f"{SUPPORT / 'double_tasks.py'}:double_digits"
LR, MOMENTUM, DECAY, TRUST = 2.0, 0.9, 1e-3, 0.01


def train(**changes) -> dict[str, torch.Tensor]:
    return simulate(
        {
            "seed": SEED,
            "task": {"kind": "python", "target": DOUBLE},
            "workers": WORKERS,
            "servers": 3,
            "compute": {"kind": "constant", "mean_s": 0.1},
            "sync": {"kind": "bsp"},
            "optimizer": {
                "kind": "lars",
                "lr": LR,
                "momentum": MOMENTUM,
                "weight_decay": DECAY,
                "trust_coefficient": TRUST,
                "schedule": {"kind": "step", "at_iterations": [6], "factor": 0.5},
            },
            "slicing": "layers",
            "batch_size": BATCH,
            "stop": {"iterations": ITERATIONS},
            **changes,
        }
    ).parameters


def plain_lars() -> dict[str, torch.Tensor]:
    """Algorithm 1 of You, Gitman and Ginsburg, written out, on the batch of all workers."""
    torch.manual_seed(SEED)
    task = load_target(DOUBLE)()
    parameters = list(task.model.parameters())
    velocities = [torch.zeros_like(p) for p in parameters]
    inputs, targets = task.train
    sampler = Sampler(len(targets), WORKERS, BATCH, SEED)
    for iteration in range(ITERATIONS):
        batch = torch.cat([sampler.indices(worker, iteration) for worker in range(WORKERS)])
        loss = task.loss(task.model(inputs[batch]), targets[batch])
        gradients = torch.autograd.grad(loss, parameters)
        rate = LR if iteration < 6 else 0.5 * LR
        with torch.no_grad():
            for i, (w, g) in enumerate(zip(parameters, gradients, strict=True)):
                local = TRUST * w.norm() / (g.norm() + DECAY * w.norm())
                velocities[i] = MOMENTUM * velocities[i] + rate * local * (g + DECAY * w)
                w -= velocities[i]
    return task.model.state_dict()


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
def test_with_whole_layers_it_is_the_published_algorithm(servers):
    assert difference(train(servers=servers), plain_lars()) < 1e-6
