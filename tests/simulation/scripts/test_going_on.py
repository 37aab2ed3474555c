"""A script in virtual time continues from a checkpoint, with all that it keeps."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch
from tests.support.paths import SCRIPTS
from tests.support.saved_runs import give_up
from tests.support.shared_out import require_shared_out

import outpace
from outpace.errors import OutpaceWarning, RunError
from outpace.record.checkpoints import Checkpoints

CONFIG = {
    "task": {"kind": "script", "path": str(SCRIPTS / "kept.py")},
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
    "checkpoint": {"every_updates": 2},
}


PEERS = {
    "hpsgd": {"kind": "hpsgd"},
    "overlap": {
        "kind": "diloco",
        "every": 3,
        "overlap": True,
        "outer_lr": 1.0,
        "outer_momentum": 0.0,
    },
}


class Killed(BaseException):
    """In place of the end of the process."""


def killed_after(number, monkeypatch):
    """End the process of the simulation when so many checkpoints are there."""
    _killed_when(lambda index: index.number == number, monkeypatch)


def _killed_when(is_enough, monkeypatch):
    commit = Checkpoints.commit

    def committed(self, index, metrics):
        path = commit(self, index, metrics)
        if is_enough(index):
            raise Killed
        return path

    monkeypatch.setattr(Checkpoints, "commit", committed)


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "bsp"},
        {"kind": "diloco", "every": 2},
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
    kept = ["worker", "iteration", "train_loss", "lr", "seen", "time_s"]
    rows = found.metrics.sort_by(order).select(kept)
    assert rows.to_pydict() == whole.metrics.sort_by(order).select(kept).to_pydict()
    saved = outpace.load_checkpoint(tmp_path / "run" / "checkpoints" / "000003")
    trained = {name for name, _ in torch.nn.Linear(4, 4).named_parameters()}
    assert {f"0.{name}" for name in trained} <= set(saved)  # without the averages of BatchNorm


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """Returns the result of a run that was killed after iteration 4 of 9, in the second epoch."""

    @cache
    def result(sync, workers):
        folder = tmp_path_factory.mktemp(sync) / "run"
        config = {**CONFIG, "sync": {"kind": sync}}
        if sync != "bsp":
            del config["servers"]
        with pytest.MonkeyPatch.context() as patch:
            killed_after(3, patch)
            with pytest.raises(Killed):
                outpace.simulate(config, folder)
        return outpace.simulate(None, resume=folder, workers=workers)

    return result


@pytest.mark.parametrize(
    ("workers", "seen"),
    [
        # At the checkpoint each of two workers had read 12 samples in epoch 0 and 4 in epoch 1, as
        # the script counts them. 16 of the 24 samples of epoch 1, and all of epoch 2, are left.
        (1, 16 + 16 + 24),
        # Of 8 samples that were used each of three workers leaves out 2 in its share of 8.
        (3, 16 + 6 + 8),
    ],
)
def test_a_script_goes_on_with_another_number_of_workers(resumed, workers, seen):
    found = resumed("bsp", workers)
    rows = found.metrics.to_pylist()
    last = {row["worker"]: row["seen"] for row in rows}
    assert [last[worker] for worker in range(workers)] == [seen] * workers
    # Schedulers continue, too: a third of the learning rate less after every second step.
    steps = {1: 4 + 4 + 6, 3: 4 + 2 + 2}[workers]
    assert rows[-1]["lr"] == pytest.approx(0.02 * 0.7 ** (steps // 2))


@pytest.mark.parametrize(
    ("kind", "before", "workers"),
    [("hpsgd", 4, 2), pytest.param("overlap", 2, 4, marks=pytest.mark.slow)],
)
def test_without_servers_another_number_of_workers_shares_the_epoch_and_keeps_what_was_trained(
    kind, before, workers, tmp_path, monkeypatch
):
    config = {
        **CONFIG,
        "task": {"kind": "script", "path": str(SCRIPTS / "counted.py")},
        "workers": before,
        "sync": PEERS[kind],
        "network": {"latency_s": 0.02},  # averages take a part of an iteration
        "checkpoint": {"every_s": 0.23, "keep": 99},
    }
    del config["servers"]
    with monkeypatch.context() as patch:
        killed_after(3, patch)
        with pytest.raises(Killed):
            outpace.simulate(config, tmp_path / "run")
    found = outpace.simulate(None, resume=tmp_path / "run", workers=workers)
    require_shared_out(tmp_path / "run", found)


@pytest.mark.filterwarnings("ignore:the script of worker-1 took")
def test_a_script_that_keeps_nothing_is_said_to_begin_anew(tmp_path):
    def stop(control):
        control.at(1.35, give_up)

    script = {"kind": "script", "path": str(SCRIPTS / "uneven.py")}
    config = {**CONFIG, "task": script, "sync": {"kind": "asp"}, "checkpoint": {"every_s": 0.52}}
    config["compute"] = {"kind": "constant", "mean_s": 0.1}
    run, begin = tmp_path / "run", "the scripts of worker-0, worker-1 begin anew"
    with (
        pytest.raises(RunError, match="that is enough"),
        pytest.warns(OutpaceWarning, match=f"if the run continues from a checkpoint, {begin}"),
    ):
        outpace.simulate(config, run, control=stop)
    before = json.loads((run / "summary.json").read_text())
    assert before["iterations"][1] == 4  # its script ended, which is in the checkpoint
    newest = Checkpoints(run).newest()
    assert newest is not None
    with pytest.warns(OutpaceWarning, match="the script of worker-0 begins anew, with the param"):
        found = outpace.simulate(resume=run)
    # The script of worker 1 had ended, and is not run again.
    assert found.summary["iterations"] == [30 + newest.index.totals.iterations[0], 4]


def test_workers_that_repeat_their_epochs_are_warned_of_in_one_line(tmp_path, monkeypatch):
    script = tmp_path / "kept.py"
    text = (SCRIPTS / "kept.py").read_text()
    script.write_text(text.replace("range(sampler.epoch, 3)", "range(3)"))
    config = {**CONFIG, "task": {"kind": "script", "path": str(script)}}
    with monkeypatch.context() as patch:
        killed_after(3, patch)  # in the second of three epochs
        with pytest.raises(Killed):
            outpace.simulate(config, tmp_path / "run")
    with pytest.warns(OutpaceWarning) as shown:
        outpace.simulate(resume=tmp_path / "run")
    told = [str(each.message) for each in shown if "sets epoch 0" in str(each.message)]
    assert told == [
        "the script continues in epoch 1 of its data, but sets epoch 0, so its epochs are "
        "repeated: let its loop begin with sampler.epoch, 0 at first"
    ]


@pytest.mark.filterwarnings("ignore:the script of worker-1 took")
def test_the_last_gradient_of_a_script_that_ends_as_a_checkpoint_is_taken_is_not_lost(
    tmp_path, monkeypatch
):
    """The servers are saved at 0.5 s: worker 1 pushes its last gradient at 0.6 s, and leaves."""
    script = {"kind": "script", "path": str(SCRIPTS / "uneven.py"), "arguments": ["keep"]}
    config = {**CONFIG, "task": script, "sync": {"kind": "asp"}}
    config["compute"] = {"kind": "constant", "mean_s": 0.1, "factors": [1.0, 1.5]}
    config["checkpoint"] = {"every_updates": 8}
    with monkeypatch.context() as patch:
        _killed_when(lambda index: index.ended, patch)
        with pytest.raises(Killed):
            outpace.simulate(config, tmp_path / "run")
    newest = Checkpoints(tmp_path / "run").newest()
    assert newest is not None
    assert newest.index.ended == (1,)
    assert newest.index.totals.applied == 4 + newest.index.totals.iterations[0]
    found = outpace.simulate(None, resume=tmp_path / "run")
    assert found.summary["iterations"][1] == 4
    assert found.summary["gradients_applied"] == 4 + found.summary["iterations"][0]
