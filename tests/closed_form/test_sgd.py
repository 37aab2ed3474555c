"""Synchronous training against one plain PyTorch process."""

from __future__ import annotations

import pytest
import torch

from outpace.blocks.sums import tree_sum
from outpace.experiment.running import simulate
from outpace.tasks.data.digits import digits_cnn
from outpace.tasks.samples import Sampler

SEED, BATCH = 3, 16


def bsp(task, *, workers, servers, iterations, momentum, lr=0.1, cv=0.5):
    return simulate(
        {
            "seed": SEED,
            "task": task,
            "workers": workers,
            "servers": servers,
            "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": cv},
            "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e7},
            "sync": {"kind": "bsp"},
            "optimizer": {"kind": "sgd", "lr": lr, "momentum": momentum},
            "batch_size": BATCH,
            "stop": {"iterations": iterations},
        }
    )


def flat_gradient(task, inputs, targets) -> torch.Tensor:
    task.model.zero_grad()
    task.loss(task.model(inputs), targets).backward()
    return torch.cat([p.grad.reshape(-1) for p in task.model.parameters()])


def plain_sgd(task, *, workers, iterations, momentum, lr=0.1) -> dict[str, torch.Tensor]:
    """One process: the same N batches, summed in the same tree, torch's unfused SGD."""
    parameters = list(task.model.parameters())
    optimizer = torch.optim.SGD(parameters, lr, momentum, foreach=False, fused=False)
    inputs, targets = task.train
    sampler = Sampler(len(targets), workers, BATCH, SEED)
    for iteration in range(iterations):
        gradients = []
        for worker in range(workers):
            batch = sampler.indices(worker, iteration)
            gradients.append(flat_gradient(task, inputs[batch], targets[batch]))
        mean = tree_sum(gradients) / workers
        sizes = [p.numel() for p in parameters]
        for parameter, part in zip(parameters, mean.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter).clone()
        optimizer.step()
    return task.model.state_dict()


@pytest.mark.parametrize(
    ("workers", "servers", "momentum"), [(1, 1, 0.9), (4, 3, 0.9), (5, 2, 0.0)]
)
def test_bsp_is_bitwise_one_process_that_sums_in_the_same_tree(workers, servers, momentum):
    result = bsp(
        {"kind": "digits-cnn"}, workers=workers, servers=servers, iterations=12, momentum=momentum
    )
    torch.manual_seed(SEED)
    expected = plain_sgd(digits_cnn(), workers=workers, iterations=12, momentum=momentum)
    assert result.parameters.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(result.parameters[name], value), name
