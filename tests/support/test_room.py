"""A run that needs more than this computer has is refused before anything is started."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from tests.support.command import refused

CONFIG = {
    "task": {"kind": "timing"},
    "workers": 4,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 1},
}


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """Returns the message of a run that is refused, with these overrides."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(json.dumps(CONFIG))

    def run(*overrides: str) -> str:
        message = refused(capsys, "run", "config.yaml", *overrides, "--out", "out")
        assert not Path("out").exists()
        assert len(message.splitlines()) == 1
        return message

    return run


def test_a_temporary_folder_whose_name_is_too_long_for_sockets_is_named(refusal, monkeypatch):
    folder = "/tmp/" + "x" * 100
    monkeypatch.setattr(tempfile, "tempdir", folder)
    message = refusal()
    assert message.startswith(f"error: TMPDIR: {folder} has 105 characters")
    assert "at most 75: set TMPDIR to a folder with a shorter name" in message


def test_too_few_file_descriptors_are_counted_before_processes_are_started(refusal, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (90, 90))
    assert refusal() == (
        "error: a process may have 90 open files here, and a run with 6 processes needs 94: raise "
        "the limit with `ulimit -n 94`, or have fewer workers or servers\n"
    )
