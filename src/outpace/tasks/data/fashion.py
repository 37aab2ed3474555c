"""Fashion-MNIST: 70,000 grey pictures of clothes, 28×28, ten classes (Xiao et al., 2017)."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from torch import nn

from outpace.support.paths import FILE
from outpace.tasks.data.files import DataSet
from outpace.tasks.supervised import supervised
from outpace.tasks.task import Pair, Task, Workload

FASHION_MNIST: Final = DataSet(
    "fashion-mnist",
    {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",  # noqa: E501
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",  # noqa: E501
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",  # noqa: E501
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",  # noqa: E501
    },
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
_MEAN, _DEVIATION = (72.94,), (90.02,)


@dataclass(frozen=True, slots=True)
class FashionMnistCnn:
    """A convolutional network on Fashion-MNIST; `folder` holds its four files.

    Attributes:
        folder: folder of the data set's files; None: the folder fashion-mnist in OUTPACE_DATA.
    """

    kind: Literal["fashion-mnist-cnn"] = "fashion-mnist-cnn"
    folder: str | None = field(default=None, metadata=FILE)

    def load(self) -> None:
        """See `HasData`."""
        _pairs(self.folder)

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        """Return the task for a run. Raises ConfigError if a file is missing or damaged."""
        return supervised(lambda: fashion_mnist_cnn(self.folder), workers, batch_size, seed)


class Pixels(nn.Module):
    """Maps bytes (n, channels, height, width) to floats of mean 0 and variance 1 per channel.

    Args:
        mean: mean pixel of each channel in the training data, from 0 to 255.
        deviation: standard deviation of the pixels of each channel.
    """

    _mean: torch.Tensor
    _deviation: torch.Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        # Not in the state dict, because the values are properties of the data and not learned.
        for name, values in (("_mean", mean), ("_deviation", deviation)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return (pictures.float() - self._mean) / self._deviation


def fashion_mnist_cnn(folder: str | None = None) -> Task:
    """Return a convolutional network with the pictures.

    It has two 3×3 convolutions (32, 64 channels) and two linear layers: 421,642 parameters.
    Raises ConfigError if the four files in `folder` are missing or damaged.
    """
    model = nn.Sequential(
        Pixels(_MEAN, _DEVIATION),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    train, test = _pairs(folder)
    return Task(model, nn.functional.cross_entropy, train, test)


def _pairs(folder: str | None) -> list[Pair]:
    """Return (train, test)."""
    found = FASHION_MNIST.find(folder)
    return [
        _pair(found[f"{part}-images-idx3-ubyte.gz"], found[f"{part}-labels-idx1-ubyte.gz"])
        for part in ("train", "t10k")
    ]


@cache
def _pair(images: Path, labels: Path) -> Pair:
    """Return pictures, uint8 of shape (n, 1, 28, 28), and classes, int64 of shape (n,)."""
    pictures, classes = torch.from_numpy(read_idx(images)), torch.from_numpy(read_idx(labels))
    return pictures.unsqueeze(1), classes.long()


def read_idx(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Read a gzipped idx file of bytes, which `DataSet` has verified."""
    with gzip.open(path) as file:
        data = file.read()
    head = 4 + 4 * data[3]  # the fourth byte is the number of dimensions
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, head, 4)]
    return np.frombuffer(bytearray(data), np.uint8, offset=head).reshape(shape)
