"""Real runs with servers that lose workers: another process replaces them or the rest train."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from outpace import run, simulate
from outpace.record.folder import LOG

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
BSP: dict[str, Any] = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0], "noise": 0.1},
    "workers": 3,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "stop": {"iterations": 60},
}
KILLED = "was killed by SIGKILL before it was done"

# Its loss kills the process of worker-1 the 20th time.
DIES_ONCE = """\
import multiprocessing, os, pathlib, signal
import torch
import outpace

def make_task():
    calls = 0

    def loss(output, target):
        nonlocal calls
        calls += output.requires_grad
        died = pathlib.Path({died!r})
        is_one = multiprocessing.current_process().name == "worker-1"
        if is_one and calls == 20 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.functional.mse_loss(output, target)

    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    return outpace.Task(torch.nn.Linear(3, 1), loss, (x, x[:, :1]), (x, x[:, :1]))
"""


def test_a_worker_that_is_killed_as_it_computes_is_restarted_and_bsp_loses_nothing(
    tmp_path, monkeypatch
):
    (tmp_path / "task.py").write_text(DIES_ONCE.format(died=str(tmp_path / "died")))
    monkeypatch.chdir(tmp_path)
    config = {**BSP, "task": {"kind": "python", "target": "task.py:make_task"}}
    said: list[str] = []
    result = run(config, tmp_path / "run", log=said.append)
    summary = result.summary
    assert said == [f"worker-1 {KILLED}; it is restarted at iteration 19 (generation 1)"]
    assert summary["parameters_digest"] == simulate(config).summary["parameters_digest"]
    assert summary["status"] == "complete"
    assert (summary["restarts"], summary["updates_lost"]) == (1, 0)
    assert summary["gradients_applied"] == 3 * 60
    assert summary["iterations"] == [60, 60, 60]
    logged = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    (restarted,) = (line for line in logged if line["event"] == "restarted")
    assert (restarted["role"], restarted["generation"]) == ("worker-1", 1)
    assert restarted["message"] == "worker-1 is started again at iteration 19, generation 1"
    assert restarted["fields"] == {"first": 19, "generation": 1, "updates_lost": 0}
    (lost,) = (row for row in result.trace.to_pylist() if row["event"] == "restart")
    assert (lost["worker"], lost["iteration"], lost["version"]) == (1, 19, None)
    assert lost["start_ns"] < lost["end_ns"]
