"""The results of a workload depend only on its arguments."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
import torch
from torch import nn

from outpace.tasks.supervised import SupervisedWorkload
from outpace.tasks.task import Task

_GENERATOR = torch.Generator().manual_seed(0)
INPUTS = 3.0 + 2.0 * torch.randn(256, 4, generator=_GENERATOR)
TARGETS = (INPUTS.sum(dim=1) > 12).long()


class Augmented(torch.utils.data.Dataset):
    """Draws from all three global generators."""

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        shift = random.random() + np.random.random() + torch.rand(()).item()
        return INPUTS[index] + shift, TARGETS[index]


def normalised() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def workload(model: nn.Module, train=(INPUTS, TARGETS)) -> SupervisedWorkload:
    task = Task(model, nn.functional.cross_entropy, train, (INPUTS, TARGETS))
    return SupervisedWorkload(task, workers=2, batch_size=16, seed=3)


def equal(a, b) -> bool:
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1], strict=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda: workload(normalised()),
        lambda: workload(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))),
        lambda: workload(nn.Linear(4, 2), Augmented()),
    ],
    ids=["batch-norm", "dropout", "augmentation"],
)
def test_a_gradient_depends_on_its_arguments_alone(make):
    mine = make()
    parameters = mine.initial_parameters()
    first = mine.gradient(parameters, 1, 5)
    mine.gradient(parameters, 0, 0)
    mine.evaluate(parameters)
    assert equal(mine.gradient(parameters, 1, 5), first)
    assert not equal(mine.gradient(parameters, 1, 6), first)


def test_an_evaluation_of_augmented_data_draws_the_same_every_time():
    mine = workload(normalised(), Augmented())
    parameters = mine.initial_parameters()
    first = mine.evaluate(parameters)
    mine.gradient(parameters, 0, 0)
    assert mine.evaluate(parameters) == first


def test_batch_norm_is_evaluated_with_the_averages_of_the_training_data():
    model = nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    mine = workload(model)
    mine.gradient(mine.initial_parameters(), 0, 0)
    state = mine.state_dict(mine.initial_parameters())
    # In batches of 100, 100 and 56, each counting as one.
    parts = torch.split(INPUTS, 100)
    mean = torch.stack([part.mean(dim=0) for part in parts]).mean(dim=0)
    variance = torch.stack([part.var(dim=0) for part in parts]).mean(dim=0)
    torch.testing.assert_close(state["0.running_mean"], mean)
    torch.testing.assert_close(state["0.running_var"], variance)


def test_an_evaluation_of_fewer_samples_takes_them_evenly_spaced():
    mine = workload(nn.Linear(4, 2))
    parameters = mine.initial_parameters()
    model = nn.Linear(4, 2)
    model.load_state_dict(mine.state_dict(parameters))
    chosen = torch.arange(64) * 4  # of 256
    output = model(INPUTS[chosen])
    found = mine.evaluate(parameters, samples=64)
    loss = nn.functional.cross_entropy(output, TARGETS[chosen]).item()
    assert found.test_loss == pytest.approx(loss, rel=1e-6)
    assert found.train_loss == pytest.approx(loss, rel=1e-6)  # the same data here
    assert found.accuracy == (output.argmax(dim=1) == TARGETS[chosen]).float().mean().item()
    assert mine.evaluate(parameters, samples=1000) == mine.evaluate(parameters)


def test_a_worker_keeps_no_object_for_each_iteration():
    inputs = torch.ones(8, 2)
    task = Task(torch.nn.Linear(2, 1), lambda output, _: output.mean(), (inputs, inputs))
    workload = SupervisedWorkload(task, workers=1, batch_size=8, seed=0)
    parameters = workload.initial_parameters()

    def tensors_after(iterations: range) -> int:
        for iteration in iterations:
            workload.gradient(parameters, 0, iteration)
        return sum(type(each) is torch.Tensor for each in gc.get_objects())

    before = tensors_after(range(100))  # each iteration is an epoch
    assert tensors_after(range(100, 400)) <= before
