"""A real run that is saved continues from its last checkpoint when a server dies."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from tests.support.saved_runs import once_saved

from outpace import run, simulate
from outpace.record.folder import LOG
from outpace.record.status import read_status
from outpace.report.read.runs import read_run
from outpace.report.read.traces import interruptions

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
BSP = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0], "noise": 0.1},
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "stop": {"iterations": 160},
    "evaluate": {"every_updates": 40},
}
SERVERS, WORKERS = ["server-0", "server-1"], ["worker-0", "worker-1"]
SAVED = {**BSP, "checkpoint": {"every_s": 0.1}}


@linux
def test_a_run_goes_on_after_the_death_of_a_server(tmp_path):
    runs, said, folder = [], [], tmp_path / "run"

    def kill() -> None:
        status = read_status(folder)
        assert status is not None
        assert status.process == os.getpid()
        assert [each.name for each in status.processes] == [*SERVERS, *WORKERS]
        os.kill(runs[0].launcher.pids["server-1"], signal.SIGKILL)

    result = run(
        SAVED,
        folder,
        watch=runs.append,
        log=said.append,
        control=once_saved(folder, kill),
    )
    assert result.summary["parameters_digest"] == simulate(BSP).summary["parameters_digest"]
    assert result.summary["status"] == "complete"
    assert result.summary["restarts"] == 1
    assert result.summary["updates_lost"] == 0
    assert result.summary["resumed_from"] is None
    assert result.summary["iterations"] == [160, 160]
    assert result.metrics["updates"].to_pylist() == [0, 40, 80, 120, 160]
    (line,) = said
    words = "server-1 was killed by SIGKILL before it was done; the run continues from checkpoints/"
    assert line.startswith(words)
    logged = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    many = ("checkpoint", "joined", "finished", "failed")  # workers may report its loss
    events = [line["event"] for line in logged if line["event"] not in many]
    again = ["launched", "training", "end"]
    assert events == ["start", "launched", "training", "lost", "group-restart", "notice", *again]
    assert sum(line["event"] == "joined" for line in logged) == 8
    (lost,) = (line for line in logged if line["event"] == "lost")
    assert (lost["role"], lost["number"], lost["level"]) == ("server-1", 1, "warning")
    assert read_status(folder) is None  # the run has ended
    (lost,) = (row for row in result.trace.to_pylist() if row["event"] == "restart")
    assert (lost["shard"], lost["worker"]) == (1, None)
    assert lost["start_ns"] < lost["end_ns"]
    assert lost["held_ns"] > 0
    (found,) = interruptions(read_run(folder, "run"))
    assert found.who == "server 1"
    assert found.checkpoint == lost["version"] >= 2
    assert runs == [runs[0]] * 2  # the live view is attached to the new processes
    assert not runs[0].launcher.pids
