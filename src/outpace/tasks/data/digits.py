"""Handwritten digits, 8×8, 1,797 of them, shipped with scikit-learn: data that is always there."""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch import nn

from outpace.support.randomness import generator
from outpace.tasks.task import Task

_TEST_SAMPLES: Final = 360
_Pair = tuple[torch.Tensor, torch.Tensor]


def digits_mlp() -> Task:
    """64-64-10 perceptron, 4,810 parameters."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    train, test = _digits()
    return Task(model, nn.functional.cross_entropy, train, test)


def digits_cnn() -> Task:
    """Two 3×3 convolutions (16, 32 channels) and two linear layers, 38,282 parameters."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    train, test = _digits()
    return Task(model, nn.functional.cross_entropy, train, test)


@cache
def _digits() -> tuple[_Pair, _Pair]:
    """(train, test), each (inputs, classes 0 to 9).

    Inputs have mean 0, variance 1 and shape (n, 1, 8, 8); classes have shape (n,).
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1)
    inputs = (inputs - inputs.mean()) / inputs.std()
    targets = torch.tensor(bunch.target, dtype=torch.int64)
    # The same split for every seed: runs with different seeds stay comparable.
    order = torch.from_numpy(generator(0, "digits split").permutation(len(targets)))
    inputs, targets = inputs[order], targets[order]
    return (
        (inputs[_TEST_SAMPLES:], targets[_TEST_SAMPLES:]),
        (inputs[:_TEST_SAMPLES], targets[:_TEST_SAMPLES]),
    )
