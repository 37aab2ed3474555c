"""The folder of a run that was killed: its summary, its report, and how it is listed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.command import outpace as command

import outpace
from outpace.experiment import recorded_run
from outpace.record import folder as files
from outpace.record.checkpoints import RunLock

CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0]},
    "workers": 2,
    "compute": {"kind": "constant", "mean_s": 0.1},
    "network": {"latency_s": 0.0, "bandwidth_bytes_per_s": 1e9},
    "sync": {"kind": "bsp"},
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "evaluate": {"every_updates": 2},
    "stop": {"iterations": 20},
    "checkpoint": {"every_updates": 5},
}


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """The folder of a run with a space in its name, as kill -9 leaves it at 1.25 s.

    An iteration of both workers takes 0.1 s. Checkpoints are due after 5 and 10 updates.
    """
    monkeypatch.setattr(recorded_run.RecordedRun, "_report", lambda *_: None)
    run, copy = tmp_path / "run", tmp_path / "a run"

    def control(control):
        control.at(1.25, lambda: shutil.copytree(run, copy))

    outpace.simulate(CONFIG, out=run, control=control)
    monkeypatch.undo()
    (copy / "run.lock").write_text("")  # the id of a process that has ended
    return copy


def test_the_summary_says_what_was_reached_at_the_last_checkpoint(killed):
    summary = files.read_summary(killed)
    assert summary["status"] == "partial"
    assert summary["error"] == files.KILLED
    assert summary["checkpoint"] == "checkpoints/000003"  # the first one is of the start
    assert summary["resume"] == f"outpace simulate --resume {killed.parent / 'run'}"  # as it was
    assert summary["virtual_time_s"] == pytest.approx(1.0)
    assert summary["iterations"] == [10, 10]
    assert summary["gradients_applied"] == 20
    assert summary["parameters_digest"] is None
    metrics = pq.read_table(killed / "checkpoints" / "000003" / files.METRICS).to_pylist()
    losses = {row["train_loss"]: row["time_s"] for row in metrics}
    assert len(losses) == 6  # after 0, 2, ..., 10 updates
    best = min(losses)
    assert summary["best"]["train_loss"] == {"value": best, "time_s": losses[best]}
    assert summary["best"]["accuracy"] is None
    assert summary["train_loss"] == metrics[-1]["train_loss"]


def test_status_and_report_say_it_and_the_run_goes_on(killed, capsys):
    assert command("status", str(killed)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{killed}: killed: {files.KILLED}"
    best = files.read_summary(killed)["best"]["train_loss"]
    assert f"best: training loss {best['value']:.4g} at {best['time_s']:.1f} s" in said
    assert said[-2:] == [
        "checkpoint: checkpoints/000003, at 1.0 s of the run",
        f"resume: outpace simulate --resume '{killed}'",
    ]
    assert command("report", str(killed)) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        f"note: the run in {killed} was killed: its records until checkpoints/000003 are shown\n"
    )
    page = (killed / files.REPORT).read_text(encoding="utf-8")
    assert "outpace simulate --resume" in page
    trace = pq.read_table(killed / files.TRACE).to_pylist()
    assert sum(row["event"] == "iteration" for row in trace) >= 2 * 9
    expected = outpace.simulate(CONFIG)
    assert command("simulate", "--resume", str(killed), "-q") == 0
    summary = files.read_summary(killed)
    assert summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert (summary["status"], summary["resume"]) == ("complete", None)


def test_the_records_of_a_run_that_is_going_on_are_left_alone(killed, capsys):
    with RunLock(killed):
        assert command("report", str(killed), "--out", str(killed.parent / "report.html")) == 0
    assert not (killed / files.TRACE).exists()
    assert not (killed / files.METRICS).exists()


def test_a_run_that_is_resumed_and_killed_at_once_says_what_it_had(killed, monkeypatch):
    found = []

    def control(control):
        found.append(files.read_summary(Path(killed)))

    outpace.simulate(resume=killed, control=control)
    (summary,) = found
    assert summary["iterations"] == [10, 10]
    assert summary["resume"] == f"outpace simulate --resume '{killed}'"
