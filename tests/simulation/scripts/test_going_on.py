"""A script in virtual time goes on from a checkpoint, with all that it keeps."""

from __future__ import annotations

import pytest
import torch
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


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "bsp"},
        {"kind": "ssgd"},
        pytest.param({"kind": "local-sgd", "every": 2}, marks=pytest.mark.slow),
        pytest.param({"kind": "diloco", "every": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_script_that_goes_on_is_bitwise_the_one_without_interruption(sync, tmp_path, monkeypatch):
    config = {**CONFIG, "sync": sync}
    if sync["kind"] != "bsp":
        del config["servers"]
    whole = outpace.simulate({**config, "checkpoint": None})
    with monkeypatch.context() as patch:
        killed_after(3, patch)  # after iteration 4 of 9, in the second of three epochs
        with pytest.raises(Killed):
            outpace.simulate(config, tmp_path / "run")
    found = outpace.simulate(None, resume=tmp_path / "run")
    assert found.summary["resumed_from"] == "checkpoints/000003"
    assert found.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert found.summary["iterations"] == [9, 9]
    order = [("worker", "ascending"), ("iteration", "ascending")]
    kept = ["worker", "iteration", "time_s", "train_loss", "lr", "seen"]
    rows = found.metrics.sort_by(order).select(kept)
    assert rows.to_pydict() == whole.metrics.sort_by(order).select(kept).to_pydict()
    saved = outpace.load_checkpoint(tmp_path / "run" / "checkpoints" / "000003")
    trained = {name for name, _ in torch.nn.Linear(4, 4).named_parameters()}
    assert {f"0.{name}" for name in trained} <= set(saved)  # without the averages of BatchNorm


@pytest.mark.filterwarnings("ignore:the optimizers of")
@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("own", marks=pytest.mark.slow)])
def test_models_of_workers_that_have_come_apart_are_all_saved(optimizer, tmp_path, monkeypatch):
    task = {"kind": "script", "path": str(SCRIPTS / "kept_apart.py"), "arguments": [optimizer]}
    config = {**CONFIG, "task": task, "sync": {"kind": "ssgd"}}
    del config["servers"]
    whole = outpace.simulate({**config, "checkpoint": None})
    with monkeypatch.context() as patch:
        killed_after(3, patch)
        with pytest.raises(Killed):
            outpace.simulate(config, tmp_path / "run")
    found = outpace.simulate(None, resume=tmp_path / "run")
    order = [("worker", "ascending"), ("iteration", "ascending")]
    rows = found.metrics.sort_by(order).select(["worker", "train_loss", "lr"]).to_pylist()
    assert rows == whole.metrics.sort_by(order).select(["worker", "train_loss", "lr"]).to_pylist()
    assert len({row["lr"] for row in rows}) > 5


@pytest.mark.parametrize(
    ("workers", "seen"),
    [
        # At the checkpoint each of two workers had read 12 samples in epoch 0 and 4 in epoch 1, as
        # the script counts them. 16 of the 24 samples of epoch 1, and all of epoch 2, are left.
        (1, 16 + 16 + 24),
        # Of 8 samples that were used each of three workers leaves out 2 in its share of 8.
        (3, 16 + 6 + 8),
        (4, 16 + 4 + 6),
    ],
)
def test_a_script_goes_on_with_another_number_of_workers(tmp_path, monkeypatch, workers, seen):
    with monkeypatch.context() as patch:
        killed_after(3, patch)  # after iteration 4 of 9, in the second of three epochs
        with pytest.raises(Killed):
            outpace.simulate(CONFIG, tmp_path / "run")
    found = outpace.simulate(None, resume=tmp_path / "run", workers=workers)
    rows = found.metrics.to_pylist()
    last = {row["worker"]: row["seen"] for row in rows}
    assert [last[worker] for worker in range(workers)] == [seen] * workers
    # Schedulers go on, too: a third of the learning rate less after every second step.
    steps = {1: 4 + 4 + 6, 3: 4 + 2 + 2, 4: 4 + 1 + 2}[workers]
    assert rows[-1]["lr"] == pytest.approx(0.02 * 0.7 ** (steps // 2))
