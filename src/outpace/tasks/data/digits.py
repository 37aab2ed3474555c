"""1,797 pictures of handwritten digits, 8×8 pixels, which are part of this package."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, Literal

import numpy as np
import torch
from torch import nn

from outpace.support.randomness import generator
from outpace.tasks.supervised import supervised
from outpace.tasks.task import Pair, Task, Workload

_TEST_SAMPLES: Final = 360


@dataclass(frozen=True, slots=True)
class DigitsMlp:
    """A perceptron on the digits."""

    kind: Literal["digits-mlp"] = "digits-mlp"

    def load(self) -> None:
        """See `HasData`."""
        _split()

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        return supervised(digits_mlp, workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class DigitsCnn:
    """A small convolutional network on the digits."""

    kind: Literal["digits-cnn"] = "digits-cnn"

    def load(self) -> None:
        """See `HasData`."""
        _split()

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        return supervised(digits_cnn, workers, batch_size, seed)


def digits_mlp() -> Task:
    """Return a 64-64-10 perceptron, 4,810 parameters, with the digits."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return Task(model, nn.functional.cross_entropy, *_split())


def digits_cnn() -> Task:
    """Return a convolutional network with the digits.

    It has two 3×3 convolutions (16, 32 channels) and two linear layers: 38,282 parameters.
    """
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
    return Task(model, nn.functional.cross_entropy, *_split())


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pictures and their classes as they were published.

    Returns:
        Pictures, uint8 from 0 to 16 of shape (1797, 8, 8), and classes from 0 to 9, int64 of
        shape (1797,).
    """
    file = resources.files("outpace.tasks.data").joinpath("digits.npz")
    with file.open("rb") as opened, np.load(opened) as arrays:
        return torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"]).long()


@cache
def _split() -> tuple[Pair, Pair]:
    """Return (train, test), each (inputs, classes).

    Inputs have mean 0, variance 1 and shape (n, 1, 8, 8).
    """
    images, targets = load_digits()
    inputs = images.float().unsqueeze(1)
    inputs = (inputs - inputs.mean()) / inputs.std()
    # The split does not depend on the run's seed: runs with different seeds stay comparable.
    order = torch.from_numpy(generator(0, "digits split").permutation(len(targets)))
    inputs, targets = inputs[order], targets[order]
    return (
        (inputs[_TEST_SAMPLES:], targets[_TEST_SAMPLES:]),
        (inputs[:_TEST_SAMPLES], targets[:_TEST_SAMPLES]),
    )
