"""CIFAR-10 is read from its archive, whose checksum is verified."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from outpace.errors import ConfigError
from outpace.support.paths import with_paths
from outpace.tasks import Cifar10
from outpace.tasks.data import cifar
from outpace.tasks.data.cifar import ARCHIVE, TEST, TRAIN
from outpace.tasks.data.files import DataSet
from outpace.tasks.data.pixels import Pixels

NAMES = (*TRAIN, TEST)
PICTURES = 3  # in each of the small files


def content(name: str) -> bytes:
    """Three records; the first picture counts through its bytes."""
    number = NAMES.index(name)
    pictures = np.arange(PICTURES * 3072).reshape(PICTURES, 3072) % 251
    classes = (np.arange(PICTURES)[:, None] + number) % 10
    return np.hstack([classes, pictures]).astype(np.uint8).tobytes()


def archive(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name in ("readme.html", *NAMES):
            data = content(name) if name in NAMES else b"about"
            member = tarfile.TarInfo(f"../../cifar-10-batches-bin/{name}")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


def test_the_task_has_the_pictures_of_the_archive_which_is_not_unpacked(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    checksum = hashlib.sha256(archive(folder / ARCHIVE).read_bytes()).hexdigest()
    monkeypatch.setattr(cifar, "CIFAR10", DataSet("cifar10", {ARCHIVE: checksum}, "http://[::1]:9"))
    task = cifar.cifar10("resnet20", str(folder))
    pictures, classes = task.train
    assert (pictures.shape, pictures.dtype) == ((5 * PICTURES, 3, 32, 32), torch.uint8)
    assert classes.tolist() == [n + k for n in range(5) for k in range(3)]
    assert task.test[1].tolist() == [5, 6, 7]
    for channel, row, column in ((0, 0, 0), (0, 1, 2), (1, 0, 0), (2, 31, 31)):
        place = 1024 * channel + 32 * row + column  # red, green and blue, row by row
        assert pictures[1, channel, row, column] == (3072 + place) % 251
    assert not list(tmp_path.rglob("*.bin"))
    by_name = with_paths(Cifar10("resnet-20", "here"), tmp_path).workload(1, 4, 0)
    _, (gradient,) = by_name.gradient(by_name.initial_parameters(), 0, 0)
    assert len(gradient) == by_name.size == 269_722
    assert gradient.isfinite().all()


def test_an_archive_of_another_checksum_is_refused(tmp_path):
    archive(tmp_path / ARCHIVE)
    with pytest.raises(ConfigError, match=r"another file: its SHA-256 is .*c4a38c50"):
        cifar.cifar10("resnet20", str(tmp_path))


def test_pixels_are_normalised_by_channel():
    pictures = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    as_numbers = pictures.float().transpose(0, 1).flatten(1)
    mean, deviation = as_numbers.mean(dim=1), as_numbers.std(dim=1)
    normal = Pixels(mean.tolist(), deviation.tolist())(pictures).transpose(0, 1).flatten(1)
    assert torch.allclose(normal.mean(dim=1), torch.zeros(3), atol=1e-5)
    assert torch.allclose(normal.std(dim=1), torch.ones(3), atol=1e-5)
    assert not Pixels([0.0], [1.0]).state_dict()
