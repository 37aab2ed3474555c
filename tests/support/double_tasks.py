"""Tasks in double precision, in which sums in another order agree to 1e-6 or better."""

import torch
from torch import nn

from outpace import Task
from outpace.tasks.data.digits import digits_mlp


def double_digits() -> Task:
    task = digits_mlp()
    (train_x, train_y), (test_x, test_y) = task.train, task.test
    return Task(
        task.model.double(),
        nn.functional.cross_entropy,
        (train_x.to(torch.float64), train_y),
        (test_x.to(torch.float64), test_y),
    )


def normalised_digits() -> Task:
    """Return a task with BatchNorm."""
    task = digits_mlp()
    (train_x, train_y), (test_x, test_y) = task.train, task.test
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10)
    )
    train = (train_x[:500], train_y[:500])
    return Task(model, nn.functional.cross_entropy, train, (test_x, test_y))
