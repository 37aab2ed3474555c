"""A script for DistributedDataParallel in virtual time continues from a checkpoint."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tests.simulation.scripts.test_going_on import Killed, killed_after
from tests.support.paths import SCRIPTS
from tests.support.shared_out import require_shared_out

import outpace

CONFIG = {
    "task": {"kind": "script", "path": str(SCRIPTS / "ddp_kept.py")},  # 9 iterations
    "workers": 2,
    "sync": {"kind": "ssgd"},
    "compute": {"kind": "constant", "mean_s": 0.1},
}


@cache
def plain():
    return outpace.simulate(CONFIG)


def logged(result, *more):
    order = [("worker", "ascending"), ("iteration", "ascending")]
    kept = ["worker", "iteration", "train_loss", "lr", *more]
    return result.metrics.sort_by(order).select(kept).to_pydict()


def test_it_is_bitwise_the_one_without_interruption(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        killed_after(3, patch)  # after iteration 4 of 9, in the second of three epochs
        with pytest.raises(Killed):
            outpace.simulate({**CONFIG, "checkpoint": {"every_updates": 2}}, folder)
    found = outpace.simulate(None, resume=folder)
    assert found.summary["resumed_from"] == "checkpoints/000003"
    for key in ("parameters_digest", "iterations", "gradients_applied", "virtual_time_s"):
        assert found.summary[key] == plain().summary[key]
    assert logged(found, "time_s") == logged(plain(), "time_s")
    folders = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert folders == ["000003", "000004", "000005"]  # after 4, 6 and 8 steps
    saved = outpace.load_checkpoint(folder / "checkpoints" / "000003")
    trained = {name for name, _ in torch.nn.Linear(4, 4).named_parameters()}
    assert {f"0.{name}" for name in trained} <= set(saved)


def test_another_number_of_workers_shares_the_rest_of_the_epoch(tmp_path, monkeypatch):
    task = {"kind": "script", "path": str(SCRIPTS / "ddp_counted.py")}
    saved = {"checkpoint": {"every_updates": 2, "keep": 99}}
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        killed_after(3, patch)  # after iteration 4 of 30, in the first of three epochs
        with pytest.raises(Killed):
            outpace.simulate({**CONFIG, "task": task, **saved}, folder)
    found = outpace.simulate(None, resume=folder, workers=4)
    # 24 samples of the first epoch are left, 6 for each of four workers, in batches of 2.
    assert found.summary["iterations"] == [4 + 3 + 5 + 5] * 2 + [3 + 5 + 5] * 2
    require_shared_out(folder, found)
