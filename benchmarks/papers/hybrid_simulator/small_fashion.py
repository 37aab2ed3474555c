"""Fashion-MNIST in pictures of 14×14 and a small network: a gradient takes a few milliseconds."""

from __future__ import annotations

import torch
from torch import nn

from outpace import Task
from outpace.tasks.data.fashion import fashion_mnist_cnn


def task() -> Task:
    """Return two 3×3 convolutions (8, 16 channels) and a linear layer: 9,098 parameters.

    As in the paper's network, a convolution is followed by a pooling layer, and nothing depends on
    the other samples of a batch.
    """
    whole = fashion_mnist_cnn()
    assert isinstance(whole.train, tuple)
    assert isinstance(whole.test, tuple)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(784, 10),
    )
    pictures, classes = whole.train
    return Task(
        model,
        nn.functional.cross_entropy,
        (_halved(pictures), classes),
        (_halved(whole.test[0]), whole.test[1]),
    )


def _halved(pictures: torch.Tensor) -> torch.Tensor:
    """Return bytes (n, 1, 28, 28) as numbers (n, 1, 14, 14) of mean 0 and variance 1."""
    small = nn.functional.avg_pool2d(pictures.float(), 2)
    return (small - small.mean()) / small.std()
