"""Processes that are killed before the training begins: nothing is lost, so all begin again."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from outpace import run, simulate
from outpace.real.run import RealRun
from outpace.record.folder import LOG

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
SSGD = {**BSP, "servers": 1, "sync": {"kind": "ssgd"}}


class Killing:
    """Kills a process of each of the first `times` attempts as soon as it is started."""

    def __init__(self, name: str, times: int) -> None:
        self._name, self._left = name, times

    def __call__(self, real: RealRun) -> None:
        if self._left:
            self._left -= 1
            os.kill(real.launcher.pids[self._name], signal.SIGKILL)


@pytest.mark.parametrize(("config", "name"), [(BSP, "server-0"), (SSGD, "worker-0")])
def test_a_process_killed_before_the_training_is_started_again(tmp_path, config, name):
    said: list[str] = []
    result = run(config, tmp_path / "run", watch=Killing(name, 1), log=said.append)
    assert result.summary["status"] == "complete"
    assert result.summary["restarts"] == 1
    assert result.summary["iterations"] == [10, 10]
    assert result.summary["updates_lost"] == 0
    assert result.summary["parameters_digest"] == simulate(config).summary["parameters_digest"]
    # A process that was killed may have begun to connect.
    assert [line for line in said if "connection" not in line] == [
        f"{name} was killed by SIGKILL before it was done; nothing was trained yet, so all "
        "processes are started again"
    ]
    events = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    assert [line["role"] for line in events if line["event"] == "lost"] == [name]
    assert sum(line["event"] == "begin-anew" for line in events) == 1
