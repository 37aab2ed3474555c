"""CIFAR-10: 60,000 colour pictures, 32×32, ten classes (Krizhevsky, 2009), binary version.

The pictures are read from the published archive, whose checksum is verified and which is not
unpacked, or from the six files unpacked from it, whose sizes and labels are checked.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, Literal

import numpy as np
import torch
from torch import nn

from outpace.errors import ConfigError
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
UNPACKED: Final = "cifar-10-batches-bin"  # the archive's only folder
BATCH_BYTES: Final = 30_730_000  # size of each of the six files
_SHAPE: Final = (3, 32, 32)
_RECORD: Final = 1 + 3 * 32 * 32  # the class, then red, green and blue, row by row
_CLASSES: Final = 10
_MEAN, _DEVIATION = (125.31, 122.95, 113.87), (62.99, 62.09, 66.70)


@dataclass(frozen=True, slots=True)
class Cifar10:
    """A named model on CIFAR-10; `folder` holds the archive or its six files.

    Attributes:
        model: name of a model: resnet-20, resnet-56, resnet-110 (He et al. 2016, section 4.2, with
            option A), resnet-50, resnet-101 (table 1 there), wide-resnet-16-4, wide-resnet-28-10,
            densenet-bc-100-12, densenet-121, mobilenet, googlenet, alexnet. Models made for
            ImageNet begin with one 3×3 convolution, and accept images from 28×28.
        folder: folder of the data set's files; None: searched below OUTPACE_DATA, else downloaded.
    """

    model: str
    folder: str | None = field(default=None, metadata=FILE)
    kind: Literal["cifar10"] = "cifar10"

    def __post_init__(self) -> None:
        require_model(self.model)

    def load(self) -> None:
        """See `HasData`."""
        _pairs(tuple(find_cifar10(self.folder)))

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        """Raises ConfigError if a file is missing or damaged."""
        return supervised(lambda: cifar10(self.model, self.folder), workers, batch_size, seed)


def cifar10(model: str, folder: str | None = None) -> Task:
    """Return one of `models.MODELS` with the pictures, neither cropped nor mirrored.

    Raises ConfigError if the archive or the six files in `folder` are missing or damaged.
    """
    network = nn.Sequential(Pixels(_MEAN, _DEVIATION), make_model(model, _CLASSES, 3))
    return Task(network, nn.functional.cross_entropy, *_pairs(tuple(find_cifar10(folder))))


def find_cifar10(folder: str | None = None) -> list[Path]:
    """Return the archive, or the six files in the order of TRAIN and TEST.

    Raises:
        ConfigError: if there is neither and the archive cannot be downloaded, if some of the six
            files are missing, or if a checksum or size is wrong.
    """
    for place in CIFAR10.places(folder):
        if (place / ARCHIVE).is_file():
            break
        for here in (place, place / UNPACKED):
            files = [here / name for name in (*TRAIN, TEST)]
            missing = [path.name for path in files if not path.is_file()]
            if not missing:
                for path in files:
                    if (size := path.stat().st_size) != BATCH_BYTES:
                        raise ConfigError(
                            f"cifar10: {path} is damaged or another file: it has {size} bytes, not "
                            f"{BATCH_BYTES}. Unpack it again from {ARCHIVE} (from {CIFAR10.url})"
                        )
                return files
            if len(missing) < len(files):
                raise ConfigError(
                    f"cifar10: missing: {', '.join(missing)}. Put them into {here}, "
                    f"or {ARCHIVE} into {place} (from {CIFAR10.url})"
                )
    return list(CIFAR10.find(folder).values())


@cache
def _pairs(found: tuple[Path, ...]) -> tuple[Pair, Pair]:
    """Return (train, test) from the files that `find_cifar10` returned."""
    batches = read_archive(found[0]) if len(found) == 1 else read_files(found)
    pictures, classes = zip(*(batches[name] for name in TRAIN), strict=True)
    return (torch.cat(pictures), torch.cat(classes)), batches[TEST]


def read_files(paths: Iterable[Path]) -> dict[str, Pair]:
    """Return file name -> (pictures, classes); files can have any number of records.

    Pictures are uint8 of shape (n, 3, 32, 32), classes int64 of shape (n,). Raises ConfigError
    if a file cannot be read or has another format.
    """
    batches = {}
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cifar10: cannot read {path}: {error.strerror}") from error
        batches[path.name] = _records(data, str(path))
    return batches


def read_archive(path: Path) -> Mapping[str, Pair]:
    """Read the six files of the archive as `read_files` does, in memory.

    Raises ConfigError if one of them is missing.
    """
    batches = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if member.isfile() and name in (*TRAIN, TEST):
                    file = archive.extractfile(member)
                    assert file is not None
                    batches[name] = _records(file.read(), f"{name} in {path}")
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ConfigError(f"cifar10: cannot read {path}: {error}") from error
    missing = [name for name in (*TRAIN, TEST) if name not in batches]
    if missing:
        raise ConfigError(f"cifar10: {path} does not contain {', '.join(missing)}")
    return batches


def _records(data: bytes, source: str) -> Pair:
    if len(data) == 0 or len(data) % _RECORD:
        raise ConfigError(
            f"cifar10: {source} has {len(data)} bytes, not a multiple of {_RECORD}: "
            "it is damaged, or not the binary version"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    wrong = np.flatnonzero(records[:, 0] >= _CLASSES)
    if len(wrong):
        raise ConfigError(
            f"cifar10: {source}: record {wrong[0]} has class {records[wrong[0], 0]}, not 0 to 9: "
            "the file is damaged, or not the binary version"
        )
    pictures = records[:, 1:].copy().reshape(-1, *_SHAPE)
    return torch.from_numpy(pictures), torch.from_numpy(records[:, 0].astype(np.int64))
