"""A full disk, simulated by a limit on the size of the files that this process may write."""

from __future__ import annotations

import gc
import json
import warnings
from pathlib import Path

import pytest
from tests.support.command import outpace

from outpace.errors import RunError
from outpace.experiment.running import run
from outpace.record import folder as files
from outpace.record import tables

resource = pytest.importorskip("resource")

CONFIG = {
    "task": {"kind": "digits-mlp"},
    "workers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "constant", "mean_s": 0.001},
    "stop": {"iterations": 3},
}


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """Returns a function that limits the size of files in bytes, from then on."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(json.dumps(CONFIG))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_model_that_cannot_be_written_is_a_line_and_the_summary_says_so(limited, capsys):
    limited(15_000)  # the parameters take 19,520
    assert outpace("simulate", "config.yaml", "--out", "out") == 1
    message = capsys.readouterr().err
    assert "error: cannot complete the folder out: model.safetensors: " in message
    assert "File too large" in message
    assert "Traceback" not in message
    summary = files.read_summary(Path("out"))
    assert summary["status"] == "failed"
    assert summary["error"].startswith("cannot complete the folder out: model.safetensors: ")


def test_a_run_is_complete_though_its_report_cannot_be_written(limited, capsys):
    limited(100_000)
    assert outpace("simulate", "config.yaml", "--out", "out") == 0
    message = " ".join(capsys.readouterr().err.split())
    assert "warning: cannot write the report out/report.html: File too large" in message
    assert "`outpace report out` makes its report" in message
    assert files.read_summary(Path("out"))["status"] == "complete"
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    assert outpace("report", "out") == 0


@pytest.mark.slow
def test_a_trace_that_cannot_be_written_ends_a_real_run_in_order(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables.pq, "ParquetWriter", full)
    monkeypatch.setattr(tables, "CHUNK", 10)  # rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as a coroutine that was never awaited
        with pytest.raises(RunError, match=r"cannot write the records .* No space"):
            run({**CONFIG, "stop": {"iterations": 10**6}}, tmp_path / "out")
        gc.collect()
    summary = files.read_summary(tmp_path / "out")
    assert summary["status"] == "failed"
    assert summary["error"].startswith("cannot write the records of the run")
    assert not list((tmp_path / "out").glob("*.part"))
