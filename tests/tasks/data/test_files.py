"""Data sets are found and checked, or the error says what to do."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch

from outpace.errors import ConfigError
from outpace.tasks.data.fashion import FASHION_MNIST, fashion_mnist_cnn
from outpace.tasks.data.files import DataSet

CONTENT = {"a.bin": b"first", "b.bin": b"second" * 100_000}
CHECKSUMS = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch):
    monkeypatch.delenv("OUTPACE_DATA", raising=False)


def put(folder: Path, *names: str, **changed: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or CONTENT:
        (folder / name).write_bytes(changed.get(name.partition(".")[0], CONTENT[name]))
    return folder


def nowhere() -> DataSet:
    return DataSet("mine", CHECKSUMS, "http://127.0.0.1:9")


def test_a_named_folder_is_the_only_one(tmp_path, monkeypatch):
    here = put(tmp_path / "here")
    assert nowhere().find(str(here)) == {name: here / name for name in CONTENT}
    monkeypatch.setenv("OUTPACE_DATA", str(tmp_path))
    put(tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"mine: missing: a.bin, b.bin. Put them into .*empty"):
        nowhere().find(str(tmp_path / "empty"))


def test_outpace_data_has_a_folder_for_each_data_set(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="into mine/ of a folder that OUTPACE_DATA names"):
        nowhere().find()
    put(tmp_path / "mine", "a.bin")
    monkeypatch.setenv("OUTPACE_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match=r"mine: missing: b.bin. Put them into .*/mine"):
        nowhere().find()
    put(tmp_path / "mine")
    assert nowhere().find() == {name: tmp_path / "mine" / name for name in CONTENT}


@pytest.mark.parametrize("content", [b"", b"another"])
def test_a_damaged_file_is_named_with_its_checksums(tmp_path, content):
    here = put(tmp_path / "here", b=content)
    with pytest.raises(ConfigError) as caught:
        nowhere().find(str(here))
    text = str(caught.value)
    assert f"{here / 'b.bin'} is damaged or another file" in text
    assert hashlib.sha256(content).hexdigest() in text
    assert CHECKSUMS["b.bin"] in text


# -- Fashion-MNIST -------------------------------------------------------------------------

SHARED = Path(os.environ.get("OUTPACE_DATA", "../shared/data")).resolve() / "fashion-mnist"
needs_files = pytest.mark.skipif(
    not all((SHARED / name).is_file() for name in FASHION_MNIST.checksums),
    reason=f"not all of {', '.join(FASHION_MNIST.checksums)} are in {SHARED}",
)


@needs_files
def test_fashion_mnist_is_what_its_paper_says():
    task = fashion_mnist_cnn(str(SHARED))
    for (pictures, classes), samples in ((task.train, 60_000), (task.test, 10_000)):
        assert pictures.shape == (samples, 1, 28, 28)
        assert pictures.dtype == torch.uint8
        assert torch.bincount(classes).tolist() == [samples // 10] * 10
    assert sum(p.numel() for p in task.model.parameters()) == 421_642
    seen = task.model[0](task.train[0])
    assert abs(float(seen.mean())) < 1e-3
    assert abs(float(seen.std()) - 1) < 1e-3
