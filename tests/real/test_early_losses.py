"""A process that is killed before the training begins: nothing is lost, so all begin again."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from outpace import run, simulate
from outpace.real.run import RealRun

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills processes")
BSP = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0], "noise": 0.1},
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.001},
    "stop": {"iterations": 10},
}


def test_a_process_killed_before_the_training_is_started_again(tmp_path):
    said: list[str] = []
    started: list[RealRun] = []

    def watch(real: RealRun) -> None:
        started.append(real)
        if len(started) == 1:
            os.kill(real.launcher.pids["server-0"], signal.SIGKILL)

    summary = run(BSP, tmp_path / "run", watch=watch, log=said.append).summary
    assert (summary["status"], summary["restarts"], summary["updates_lost"]) == ("complete", 1, 0)
    assert summary["iterations"] == [10, 10]
    assert summary["parameters_digest"] == simulate(BSP).summary["parameters_digest"]
    # A process that was killed may have begun to connect.
    assert [line for line in said if "connection" not in line] == [
        "server-0 was killed by SIGKILL before it was done; nothing was trained yet, so all "
        "processes are started again"
    ]
