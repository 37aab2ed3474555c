"""What the script of a worker continues with if the worker is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.paths import SCRIPTS

from outpace.config.reading import experiment_from
from outpace.engine.resuming import kept_in
from outpace.real.coordinator.saving.script_states import ScriptStates

OF_FIRST, OF_OTHER = bytes([1, 2, 3]), bytes([4, 5])
CONFIG = {
    "task": {"kind": "script", "path": str(SCRIPTS / "elastic.py")},
    "workers": 3,
    "servers": 2,
    "sync": {"kind": "asp"},
}


class Run:
    """A run with three workers, whose checkpoints are made by hand."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path / "none"
        unused: Any = None
        self.kept = ScriptStates(
            experiment_from(CONFIG, "the test"),
            unused,
            None,
            lambda: self.folder if self.folder.exists() else None,
        )

    def save(self, name: str, **states: bytes) -> None:
        """Take a checkpoint, with the states of these workers."""
        self.folder = self.path / name
        self.folder.mkdir()
        for worker, state in states.items():
            (self.folder / kept_in(int(worker.removeprefix("worker_")))).write_bytes(state)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def given(run: Run, worker: int) -> bytes:
    """Return the state that a new process of this worker gets; nothing goes to others."""
    states = run.kept.of(worker)
    assert states.keys() <= {worker}
    return bytes(states[worker].numpy()) if states else b""


def test_a_worker_gets_its_own_state_the_newest_one(run):
    assert given(run, 1) == b""  # no checkpoint yet
    run.save("1", worker_0=OF_FIRST, worker_1=OF_OTHER)
    assert given(run, 1) == OF_OTHER
    run.kept.sent(1, torch.tensor([9], dtype=torch.uint8), 5)
    assert given(run, 1) == bytes([9])
