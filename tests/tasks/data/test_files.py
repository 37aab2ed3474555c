"""Data sets: found, checked, downloaded; or it is said what to do."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import threading
from pathlib import Path

import pytest
import torch

from outpace.errors import ConfigError
from outpace.tasks.data.fashion import FASHION_MNIST, fashion_mnist_cnn
from outpace.tasks.data.files import DataSet

CONTENT = {"a.bin": b"first", "b.bin": b"second" * 100_000}
CHECKSUMS = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing of this machine's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("OUTPACE_DATA", raising=False)


def put(folder: Path, *names: str, **changed: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or CONTENT:
        (folder / name).write_bytes(changed.get(name.partition(".")[0], CONTENT[name]))
    return folder


@pytest.fixture
def served(tmp_path):
    """A server of the files, and what was asked of it."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(tmp_path / "server"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


def nowhere() -> DataSet:
    return DataSet("mine", CHECKSUMS, "http://127.0.0.1:9")  # nobody listens there


def test_a_named_folder_is_the_only_one(tmp_path, monkeypatch):
    here = put(tmp_path / "here")
    assert nowhere().find(str(here)) == {name: here / name for name in CONTENT}
    monkeypatch.setenv("OUTPACE_DATA", str(tmp_path))
    put(tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"mine: missing: a.bin, b.bin. Put them into .*empty"):
        nowhere().find(str(tmp_path / "empty"))


def test_outpace_data_comes_before_the_network(tmp_path, monkeypatch, served):
    url, asked = served
    put(tmp_path / "mine")
    monkeypatch.setenv("OUTPACE_DATA", str(tmp_path))
    found = DataSet("mine", CHECKSUMS, url).find()
    assert found == {name: tmp_path / "mine" / name for name in CONTENT}
    assert asked == []


def test_what_is_missing_is_downloaded_once(tmp_path, monkeypatch, served):
    url, asked = served
    put(tmp_path / "server")
    put(tmp_path / "mine", "a.bin")
    monkeypatch.setenv("OUTPACE_DATA", str(tmp_path))
    data = DataSet("mine", CHECKSUMS, url)
    for _ in range(2):
        found = data.find()
        assert found["a.bin"] == tmp_path / "mine" / "a.bin"
        assert found["b.bin"].read_bytes() == CONTENT["b.bin"]
        assert tmp_path / "cache" in found["b.bin"].parents
    assert asked == ["/b.bin"]


def test_a_download_that_is_not_the_file_leaves_none(tmp_path, served):
    url, _ = served
    put(tmp_path / "server", b=b"something else")
    with pytest.raises(ConfigError, match=r"cannot download .*/b.bin \(ValueError\)"):
        DataSet("mine", CHECKSUMS, url).find()
    assert not list((tmp_path / "cache").rglob("b.bin*"))


def test_without_a_network_it_is_said_which_files_go_where(tmp_path):
    with pytest.raises(ConfigError) as caught:
        nowhere().find()
    text = str(caught.value)
    assert "cannot download http://127.0.0.1:9/a.bin (ConnectionError)" in text
    assert f"Put a.bin, b.bin into {tmp_path / 'cache' / 'outpace' / 'mine'}" in text
    assert "mine/ of a folder that OUTPACE_DATA names" in text


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
