"""CIFAR-10: 60,000 colour pictures, 32×32, ten classes (Krizhevsky, 2009), binary version.

The pictures are read from the published archive, whose checksum is verified and which is not
unpacked.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, Literal

import numpy as np
import torch
from torch import nn

from outpace.support.paths import FILE
from outpace.tasks.data.files import DataSet
from outpace.tasks.data.pixels import Pixels
from outpace.tasks.models import make_model, require_model
from outpace.tasks.supervised import supervised
from outpace.tasks.task import Pair, Task, Workload

ARCHIVE: Final = "cifar-10-binary.tar.gz"
CIFAR10: Final = DataSet(
    "cifar10",
    {ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    "https://www.cs.toronto.edu/~kriz",
)
TRAIN: Final = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST: Final = "test_batch.bin"
_SHAPE: Final = (3, 32, 32)
_RECORD: Final = 1 + 3 * 32 * 32  # the class, then red, green and blue, row by row
_CLASSES: Final = 10
_MEAN, _DEVIATION = (125.31, 122.95, 113.87), (62.99, 62.09, 66.70)


@dataclass(frozen=True, slots=True)
class Cifar10:
    """A named model on CIFAR-10; `folder` holds the archive.

    Attributes:
        model: name of a model: resnet-20, resnet-56, resnet-110 (He et al. 2016, section 4.2, with
            option A), resnet-50, resnet-101 (table 1 there), wide-resnet-16-4, wide-resnet-28-10.
            Models made for ImageNet begin with one 3×3 convolution, and accept images from 28×28.
        folder: folder of the data set's files; None: searched below OUTPACE_DATA, else downloaded.
    """

    model: str
    folder: str | None = field(default=None, metadata=FILE)
    kind: Literal["cifar10"] = "cifar10"

    def __post_init__(self) -> None:
        require_model(self.model)

    def load(self) -> None:
        """See `HasData`."""
        _pairs(CIFAR10.find(self.folder)[ARCHIVE])

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        """Raises ConfigError if a file is missing or damaged."""
        return supervised(lambda: cifar10(self.model, self.folder), workers, batch_size, seed)


def cifar10(model: str, folder: str | None = None) -> Task:
    """Return one of `models.MODELS` with the pictures, neither cropped nor mirrored.

    Raises ConfigError if the archive in `folder` is missing or damaged.
    """
    network = nn.Sequential(Pixels(_MEAN, _DEVIATION), make_model(model, _CLASSES, 3))
    train, test = _pairs(CIFAR10.find(folder)[ARCHIVE])
    return Task(network, nn.functional.cross_entropy, train, test)


@cache
def _pairs(path: Path) -> tuple[Pair, Pair]:
    """Return (train, test) from the archive, which `DataSet` has verified."""
    batches = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if name in (*TRAIN, TEST):
                file = archive.extractfile(member)
                assert file is not None
                batches[name] = _records(file.read())
    pictures, classes = zip(*(batches[name] for name in TRAIN), strict=True)
    return (torch.cat(pictures), torch.cat(classes)), batches[TEST]


def _records(data: bytes) -> Pair:
    """Return pictures, uint8 of shape (n, 3, 32, 32), and classes, int64 of shape (n,)."""
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    pictures = records[:, 1:].copy().reshape(-1, *_SHAPE)
    return torch.from_numpy(pictures), torch.from_numpy(records[:, 0].astype(np.int64))
