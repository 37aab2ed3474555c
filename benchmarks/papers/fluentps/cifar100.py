"""CIFAR-100 with its 100 fine classes, as a task of a configuration (Krizhevsky 2009).

It is read from the files train.bin and test.bin of the binary version. A record of them is the
coarse class, the fine class, and the picture: red, green and blue, row by row.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn

from outpace import Task
from outpace.errors import ConfigError
from outpace.tasks.data.pixels import Pixels
from outpace.tasks.models import make_model, require_model
from outpace.tasks.task import Pair

RECORDS: Final = {"train.bin": 50_000, "test.bin": 10_000}
_CLASSES: Final = 100
_SHAPE: Final = (3, 32, 32)
_RECORD: Final = 2 + 3 * 32 * 32
_MEAN, _DEVIATION = (129.30, 124.07, 112.43), (68.17, 65.39, 70.42)


def cifar100(model: str, folder: str | None = None) -> Task:
    """Return one of `outpace.tasks.models.MODELS` with the pictures, neither cropped nor mirrored.

    folder: holds the two files; None: cifar100/ in the folder that OUTPACE_DATA names. Raises
    ConfigError if a file is missing or damaged.
    """
    require_model(model)
    place = Path(folder or Path(os.environ.get("OUTPACE_DATA", ".")) / "cifar100")
    train, test = (read(place / name, records) for name, records in RECORDS.items())
    network = nn.Sequential(Pixels(_MEAN, _DEVIATION), make_model(model, _CLASSES, 3))
    return Task(network, nn.functional.cross_entropy, train, test)


def read(path: Path, records: int) -> Pair:
    """Return (pictures, fine classes) of a file: uint8 of shape (n, 3, 32, 32) and int64.

    Raises ConfigError if the file cannot be read, or does not hold as many records.
    """
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise ConfigError(
            f"cifar100: cannot read {path}: {error.strerror}. Unpack cifar-100-binary.tar.gz (from "
            "https://www.cs.toronto.edu/~kriz) there, or name the folder in the task's arguments"
        ) from error
    if len(data) != records * _RECORD:
        raise ConfigError(
            f"cifar100: {path} is damaged or another file: it has {len(data)} bytes, not "
            f"{records * _RECORD}. Unpack it again from cifar-100-binary.tar.gz"
        )
    rows = data.reshape(records, _RECORD)
    if (wrong := rows[:, 1] >= _CLASSES).any():
        raise ConfigError(
            f"cifar100: {path}: record {int(wrong.argmax())} has a class above 99. "
            "Unpack it again from cifar-100-binary.tar.gz"
        )
    pictures = torch.from_numpy(rows[:, 2:].copy().reshape(-1, *_SHAPE))
    return pictures, torch.from_numpy(rows[:, 1].astype(np.int64))
