"""`outpace status`: the description of a run, from its folder."""

from __future__ import annotations

import json
import os
import socket
import time

import pytest
from tests.cli.test_entry import imported
from tests.support.command import outpace as command
from tests.support.command import refused

import outpace
from outpace.experiment import recorded_run
from outpace.record import folder as files
from outpace.record.checkpoints import Checkpoints, RunLock
from outpace.record.folder import LOG
from outpace.record.status import CheckpointStatus, ProcessStatus, Status, read_status, write_status

CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0]},
    "workers": 2,
    "compute": {"kind": "constant", "mean_s": 0.1},
    "network": {"latency_s": 0.0, "bandwidth_bytes_per_s": 1e9},
    "sync": {"kind": "bsp"},
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "stop": {"iterations": 20},
    "checkpoint": {"every_updates": 5},
}


@pytest.fixture(autouse=True)
def without_reports(monkeypatch):
    monkeypatch.setattr(recorded_run.RecordedRun, "_report", lambda *_: None)


def failed(out, **changes):
    """Leave the folder of a run that failed at 1.05 s, in its 11th iteration."""

    def control(run):
        def fail():
            raise outpace.RunError("the power is off")

        run.at(1.05, fail)

    with pytest.raises(outpace.RunError, match="the power is off"):
        outpace.simulate({**CONFIG, **changes}, out=out, control=control)
    return out


def killed(out):
    """Change the folder of a run that failed as if the run had been killed."""
    summary = files.read_summary(out)
    files.write_summary(out, {**summary, "status": "partial", "error": files.KILLED})


def status_of(*, at, command="run", process=None):
    return Status(
        command=command,
        process=process or os.getpid(),
        host=socket.gethostname(),
        since=at - 90,
        at=at,
        phase="training",
        waits_for="worker-1 in iteration 10: nothing new for 4 s",
        elastic="node four joined: 1 worker more",
        time_s=80.25,
        share=0.5,
        iterations=10,
        most_iterations=20,
        gradients=21,
        gradients_per_s=2.5,
        processes=[
            ProcessStatus(name="server-0", state="training", quiet_s=0.0),
            ProcessStatus(name="worker-0", state="training", iteration=11, quiet_s=0.2, node="a"),
            ProcessStatus(name="worker-1", state="training", iteration=10, quiet_s=4.0),
        ],
        checkpoints=CheckpointStatus(number=2, time_s=70.0, written=at - 7),
        restarts=1,
        updates_lost=3,
    )


def lines(capsys, *arguments):
    assert command("status", *map(str, arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_a_run_that_failed_can_be_resumed_with_the_command_that_is_named(tmp_path, capsys):
    run = failed(tmp_path / "run")
    assert lines(capsys, run) == [
        f"{run}: failed: the power is off",
        "progress: iteration 10 of the slowest worker, 1.1 s of virtual time, 20 gradients",
        "checkpoint: checkpoints/000003, at 1.0 s of the run",
        f"resume: outpace simulate --resume {run}",
    ]
    outpace.simulate(resume=run)
    *said, best = lines(capsys, run)
    assert best.startswith("best: training loss 0.")
    assert said == [
        f"{run}: complete",
        "progress: iteration 20 of the slowest worker, 2.0 s of virtual time, 40 gradients",
        "failures: 0 restarts, 0 updates lost, resumed from checkpoints/000003",
    ]


def test_a_run_without_checkpoints_cannot_be_resumed(tmp_path, capsys):
    run = failed(tmp_path / "run", checkpoint=None)
    assert lines(capsys, run)[-1].startswith("resume: not possible, there is no checkpoint")
    assert not (run / "run.lock").exists()


def test_a_run_whose_checkpoints_are_damaged_is_not_said_to_have_none(tmp_path, capsys):
    run = failed(tmp_path / "run")
    for index in run.glob("checkpoints/*/index.json"):
        index.write_text("{}")
    assert lines(capsys, run)[-1].startswith("resume: not possible, all checkpoints are damaged")
    said = refused(capsys, "simulate", "--resume", str(run))
    assert "checkpoints/000003/index.json is damaged: 'index'" in said


def test_a_run_that_is_going_on(tmp_path, capsys, monkeypatch):
    run = failed(tmp_path / "run")
    killed(run)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    write_status(run, status_of(at=now))
    with RunLock(run):
        said = lines(capsys, run)
        found = json.loads("\n".join(lines(capsys, run, "--json")))
    assert said[0].startswith(f"{run}: training, process ")
    assert said[0].endswith(" (1 min 30 s)")
    assert said[1:] == [
        "progress: 50 %, iteration 10 of 20 of the slowest worker, 80.2 s, 21 gradients (2.5/s)",
        "waits for: worker-1 in iteration 10: nothing new for 4 s",
        "elastic: node four joined: 1 worker more",
        "checkpoints: number 2, at 70.0 s, written 7 s ago",
        "failures: 1 restart, 3 updates lost",
        "",
        "          node  iteration  nothing new for     state",
        "server-0     -          -              0 s  training",
        "worker-0     a         11              0 s  training",
        "worker-1     -         10              4 s  training",
    ]
    assert found["state"] == "running"
    assert found["resume"] is None
    assert found["late_s"] is None
    assert found["status"]["processes"][2] == {
        "name": "worker-1",
        "state": "training",
        "generation": 0,
        "iteration": 10,
        "quiet_s": 4.0,
        "node": None,
    }


def test_a_run_that_does_not_write_its_status_any_more(tmp_path, capsys, monkeypatch):
    run = failed(tmp_path / "run")
    killed(run)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    write_status(run, status_of(at=now - 60))
    with RunLock(run):
        assert lines(capsys, run)[0].endswith("; it has written no status for 1 min 0 s")


def test_a_run_that_is_being_resumed_is_not_what_a_killed_process_said_of_it(tmp_path, capsys):
    run = failed(tmp_path / "run")
    killed(run)
    write_status(run, status_of(at=time.time() - 60, process=os.getppid()))
    with RunLock(run):
        (said,) = lines(capsys, run)
        found = json.loads("\n".join(lines(capsys, run, "--json")))
    assert said.startswith(f"{run}: starting, process {os.getpid()} on ")
    assert "no status" not in said
    assert (found["state"], found["status"], found["late_s"]) == ("running", None, None)


def test_a_folder_that_is_not_of_one_run_is_refused(tmp_path, capsys):
    assert "not the folder of a run" in refused(capsys, "status", str(tmp_path))


def test_a_simulation_writes_its_status(tmp_path, monkeypatch):
    monkeypatch.setattr("outpace.simulation.virtual.EVERY_S", 0.0)
    found = []
    outpace.simulate(
        {**CONFIG, "stop": {"iterations": 64}},
        out=tmp_path / "run",
        progress=lambda share: found.append((share, read_status(tmp_path / "run"))),
    )
    (share, before), (_, status) = found  # after every 64 gradients, and written afterwards
    assert (share, before) == (0.5, None)
    assert (status.command, status.iterations, status.share) == ("simulate", 32, 0.5)
    assert status.checkpoints.number == 7  # of the start, and after 5, 10, ..., 30 updates
    assert read_status(tmp_path / "run") is None  # the run has ended


def test_the_log_says_what_happened(tmp_path):
    run = failed(tmp_path / "run")
    outpace.simulate(resume=run)
    logged = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    assert [line["event"] for line in logged] == [
        *("start", "training", "checkpoint", "checkpoint", "checkpoint", "end"),
        *("resume", "training", "checkpoint", "checkpoint", "end"),
    ]
    assert {line["run"] for line in logged} == {"run"}
    assert {line["role"] for line in logged} == {"launcher", "coordinator"}
    assert logged[0]["message"] == "the run begins: 2 workers, 1 server"
    assert logged[5]["message"] == "the run has ended: failed"
    assert logged[5]["level"] == "error"
    assert logged[5]["fields"]["error"] == "the power is off"
    assert logged[6]["fields"]["number"] == 3
    assert logged[-1]["fields"]["resumed_from"] == "checkpoints/000003"


def test_status_reads_files_without_torch(tmp_path):
    out = failed(tmp_path / "run")
    assert len(Checkpoints(out).numbers()) > 0
    assert imported("status", out) == (0, [])
    assert imported("status", out, "--json") == (0, [])
