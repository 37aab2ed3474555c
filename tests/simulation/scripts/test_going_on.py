"""A script in virtual time goes on from a checkpoint, with all that it keeps."""

from __future__ import annotations

import pytest
from tests.support.paths import SCRIPTS

import outpace
from outpace.record.checkpoints import Checkpoints

CONFIG = {
    "task": {"kind": "script", "path": str(SCRIPTS / "kept.py")},
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
    "checkpoint": {"every_updates": 2},
}


class Killed(BaseException):
    """In place of the end of the process."""


def killed_after(number, monkeypatch):
    """End the process of the simulation when so many checkpoints are there."""
    commit = Checkpoints.commit

    def committed(self, index, metrics):
        path = commit(self, index, metrics)
        if index.number == number:
            raise Killed
        return path

    monkeypatch.setattr(Checkpoints, "commit", committed)


def test_a_script_that_goes_on_is_bitwise_the_one_without_interruption(tmp_path, monkeypatch):
    whole = outpace.simulate({**CONFIG, "checkpoint": None})
    with monkeypatch.context() as patch:
        killed_after(3, patch)  # after iteration 4 of 9, in the second of three epochs
        with pytest.raises(Killed):
            outpace.simulate(CONFIG, tmp_path / "run")
    with pytest.raises(outpace.ConfigError, match="workers cannot change for a script"):
        outpace.simulate(None, resume=tmp_path / "run", workers=3)
    found = outpace.simulate(None, resume=tmp_path / "run")
    assert found.summary["resumed_from"] == "checkpoints/000003"
    assert found.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert found.summary["iterations"] == [9, 9]
    order = [("worker", "ascending"), ("iteration", "ascending")]
    kept = ["worker", "iteration", "time_s", "train_loss", "lr", "seen"]
    rows = found.metrics.sort_by(order).select(kept)
    assert rows.to_pydict() == whole.metrics.sort_by(order).select(kept).to_pydict()
