"""CIFAR-10: read from the archive or the six files, and what is wrong with either is said."""

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
from outpace.tasks.data.cifar import ARCHIVE, TEST, TRAIN, UNPACKED, read_archive, read_files
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


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        (folder / name).write_bytes(content(name))
    return folder


def archive(path: Path, names: tuple[str, ...] = NAMES, folder: str = UNPACKED + "/") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as file:
        for name in ("readme.html", *names):
            data = content(name) if name in NAMES else b"about"
            member = tarfile.TarInfo(folder + name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture(autouse=True)
def own_data_only(tmp_path, monkeypatch):
    """Nothing of this machine's, nothing from the network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OUTPACE_DATA", raising=False)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """As if the small files had been published."""
    monkeypatch.setattr(cifar, "BATCH_BYTES", PICTURES * 3073)
    checksum = hashlib.sha256(archive(tmp_path / "made" / ARCHIVE).read_bytes()).hexdigest()
    monkeypatch.setattr(cifar, "CIFAR10", DataSet("cifar10", {ARCHIVE: checksum}, "http://[::1]:9"))
    return tmp_path / "made" / ARCHIVE


def test_a_record_is_a_class_and_its_red_green_and_blue_rows(tmp_path):
    put(tmp_path)
    pictures, classes = read_files([tmp_path / "data_batch_3.bin"])["data_batch_3.bin"]
    assert pictures.shape == (PICTURES, 3, 32, 32)
    assert (pictures.dtype, classes.dtype) == (torch.uint8, torch.int64)
    assert classes.tolist() == [2, 3, 4]
    for channel, row, column in ((0, 0, 0), (0, 1, 2), (1, 0, 0), (2, 31, 31)):
        place = 1024 * channel + 32 * row + column
        assert pictures[1, channel, row, column] == (3072 + place) % 251


def test_the_archive_holds_what_the_files_hold_and_nothing_is_unpacked(tmp_path):
    files = read_files(put(tmp_path / "files") / name for name in NAMES)
    path = archive(tmp_path / "archive" / ARCHIVE, folder="../../somewhere/")
    packed = read_archive(path)
    assert packed.keys() == files.keys()
    for name in NAMES:
        for one, other in zip(packed[name], files[name], strict=True):
            assert torch.equal(one, other)
    assert sorted(tmp_path.rglob("*.bin")) == sorted(tmp_path / "files" / name for name in NAMES)
    assert not (tmp_path.parent / "somewhere").exists()


def test_a_link_in_an_archive_leads_nowhere(tmp_path):
    path = tmp_path / ARCHIVE
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo(TEST)
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(member)
    with pytest.raises(ConfigError, match=r"does not contain data_batch_1.bin"):
        read_archive(path)


@pytest.mark.parametrize("where", ["", UNPACKED])
@pytest.mark.parametrize("packed", [True, False])
def test_all_places_give_the_same_task(small, tmp_path, monkeypatch, packed, where):
    if packed:
        archive(tmp_path / "data" / "cifar10" / ARCHIVE).write_bytes(small.read_bytes())
    else:
        put(tmp_path / "data" / "cifar10" / where)
    monkeypatch.setenv("OUTPACE_DATA", str(tmp_path / "data"))
    for folder in (None, str(tmp_path / "data" / "cifar10")):
        task = cifar.cifar10("resnet20", folder)
        assert task.train[0].shape == (5 * PICTURES, 3, 32, 32)
        assert task.train[0].dtype == torch.uint8
        assert task.train[1].tolist() == [n + k for n in range(5) for k in range(3)]
        assert task.test[1].tolist() == [5, 6, 7]
        assert task.model(task.test[0]).shape == (PICTURES, 10)


def test_it_is_trained_by_its_name(small, tmp_path):
    put(tmp_path / "here")
    by_name = with_paths(Cifar10("resnet-20", "here"), tmp_path).workload(1, 4, 0)
    assert by_name.size == 269_722
    _, (gradient,) = by_name.gradient(by_name.initial_parameters(), 0, 0)
    assert gradient.isfinite().all()


def test_a_named_folder_without_the_files_is_named(tmp_path):
    with pytest.raises(ConfigError, match=f"missing: {ARCHIVE}. Put them into .*nothing"):
        Cifar10("resnet20", str(tmp_path / "nothing")).workload(1, 1, 0)


def test_of_six_files_none_may_be_missing(small, tmp_path):
    put(tmp_path / "five", *NAMES[1:])
    with pytest.raises(ConfigError, match=rf"missing: data_batch_1.bin. Put them into .*{ARCHIVE}"):
        cifar.cifar10("resnet20", str(tmp_path / "five"))


def test_an_archive_of_another_checksum_is_refused(tmp_path):
    archive(tmp_path / ARCHIVE)
    with pytest.raises(ConfigError, match=r"another file: its SHA-256 is .*c4a38c50"):
        cifar.cifar10("resnet20", str(tmp_path))


def test_unpacked_files_have_the_published_size(tmp_path):
    put(tmp_path)
    with pytest.raises(ConfigError, match=r"data_batch_1.bin .* has 9219 bytes, not 30730000"):
        cifar.cifar10("resnet20", str(tmp_path))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes, not a multiple of 3073"),
        (bytes(3073 + 1), "3074 bytes, not a multiple of 3073"),
        (bytes(3073) + bytes([10]) + bytes(3072), "record 1 has class 10, not 0 to 9"),
    ],
)
def test_what_is_no_list_of_records_is_refused(tmp_path, data, words):
    (tmp_path / TEST).write_bytes(data)
    with pytest.raises(ConfigError, match=rf"{TEST}.*{words}"):
        read_files([tmp_path / TEST])


def test_an_archive_that_cannot_be_read_is_refused(tmp_path):
    whole = archive(tmp_path / ARCHIVE).read_bytes()
    for data in (b"", b"no archive", whole[: len(whole) // 2]):
        (tmp_path / ARCHIVE).write_bytes(data)
        with pytest.raises(ConfigError, match="cifar10: cannot read"):
            read_archive(tmp_path / ARCHIVE)
    archive(tmp_path / ARCHIVE, NAMES[:-1])
    with pytest.raises(ConfigError, match=f"does not contain {TEST}"):
        read_archive(tmp_path / ARCHIVE)


def test_pixels_are_normalised_by_channel():
    pictures = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    as_numbers = pictures.float().transpose(0, 1).flatten(1)
    mean, deviation = as_numbers.mean(dim=1), as_numbers.std(dim=1)
    normal = Pixels(mean.tolist(), deviation.tolist())(pictures).transpose(0, 1).flatten(1)
    assert torch.allclose(normal.mean(dim=1), torch.zeros(3), atol=1e-5)
    assert torch.allclose(normal.std(dim=1), torch.ones(3), atol=1e-5)
    assert not Pixels([0.0], [1.0]).state_dict()
