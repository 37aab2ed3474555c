"""`overlap: backward` on real processes: parts leave during backward, and nothing else changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.script_runs import script_run

from outpace.errors import ConfigError
from outpace.experiment.running import run, simulate

pytestmark = pytest.mark.slow
OVERLAP = {"overlap": "backward", "non_finite": "stop"}
TASK = """
import outpace
import torch


def make():
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.randn(64, 40, generator=draw) for _ in range(2))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(40, 40) for _ in range(6)]
    model = torch.nn.Sequential(*layers[:3], torch.nn.Dropout(0.2), *layers[3:])
    return outpace.Task(model=model, loss=torch.nn.functional.mse_loss, train=(x, y), test=(x, y))
"""


def task(folder: Path, **changes: Any) -> dict[str, Any]:
    (folder / "task.py").write_text(TASK)
    return {
        "task": {"kind": "python", "target": f"{folder}/task.py:make"},
        "workers": 2,
        "servers": 2,
        "batch_size": 8,
        "sync": {"kind": "bsp"},
        "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
        "deterministic": True,
        "probe": False,
        "stop": {"iterations": 12},
        **changes,
    }


def sent_before_the_end(folder: Path, server: int) -> list[bool]:
    """Return, for each push to a server, whether it left before its computation had ended."""
    rows = pq.read_table(folder / "timing.parquet").to_pylist()
    ends = {
        (row["worker"], row["iteration"]): row["arrived_ns"]
        for row in rows
        if row["what"] == "compute"
    }
    pushes = [row for row in rows if row["what"] == "push" and row["server"] == server]
    return [row["sent_end_ns"] < ends[row["worker"], row["iteration"]] for row in pushes]


def require_same_with_overlap(made, folder):
    """Run without and with overlap, in folders `plain` and `overlapped`, and in virtual time."""
    plain = run(made, folder / "plain")
    overlapped = run({**made, **OVERLAP}, folder / "overlapped")
    law = {"compute": {"kind": "constant", "mean_s": 1.0}}
    simulated = simulate({**made, **OVERLAP, **law})
    for key in ("parameters_digest", "gradients_applied", "iterations", "messages", "bytes_sent"):
        assert overlapped.summary[key] == plain.summary[key]
    assert simulated.summary["parameters_digest"] == plain.summary["parameters_digest"]


def test_a_task_under_bsp_ends_with_bitwise_the_same_parameters(tmp_path):
    require_same_with_overlap(task(tmp_path), tmp_path)
    assert sent_before_the_end(tmp_path / "overlapped", server=1) == [True] * 24
    assert sent_before_the_end(tmp_path / "plain", server=1) == [False] * 24


def test_a_script_under_bsp_ends_with_bitwise_the_same_parameters(tmp_path):
    made = script_run("overlapped.py", mean_s=0.0)
    made.pop("compute")
    require_same_with_overlap(made, tmp_path)
    assert sent_before_the_end(tmp_path / "overlapped", server=1) == [True] * 12
    # Server 0 has a parameter without gradient in every other iteration.
    early = sent_before_the_end(tmp_path / "overlapped", server=0)
    assert (early.count(True), early.count(False)) == (6, 6)
    assert sent_before_the_end(tmp_path / "plain", server=1) == [False] * 12


def test_a_script_that_needs_the_whole_gradient_is_refused():
    made = script_run("overlapped.py", "clips", mean_s=0.01)
    with pytest.raises(ConfigError, match="clipping and the like") as refusal:
        run({**made, **OVERLAP})
    assert "leave overlap out" in str(refusal.value)


def test_a_worker_that_gives_up_in_the_middle_of_backward_leaves_no_server_waiting(capfd):
    made = script_run("overlapped.py", "half", mean_s=0.0)
    made.pop("compute")
    result = run({**made, **OVERLAP})
    assert "worker-1 | gives up" in capfd.readouterr().out
    assert result.summary["status"] == "complete"
    assert result.summary["iterations"][0] == 6
    last = [
        (row["shard"], row["outcome"])
        for row in result.trace.to_pylist()
        if row["event"] == "push" and (row["worker"], row["iteration"]) == (1, 2)
    ]
    assert sorted(last) == [(0, "abstained"), (1, "applied")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are killed by themselves")
def test_a_script_that_computes_iterations_again_after_a_death_pushes_none_of_them_twice(tmp_path):
    # The parameters say how often each sample was used: in two epochs twice.
    made = script_run("ledger_script.py", tmp_path / "died", mean_s=0.0, sync={"kind": "asp"})
    made.pop("compute")
    result = run({**made, **OVERLAP, "checkpoint": {"every_s": 1000}}, tmp_path / "run")
    assert (tmp_path / "died").exists()
    assert result.summary["restarts"] == 1
    assert result.summary["iterations"] == [40, 40]
    assert result.parameters["entries"].tolist() == [-2.0] * 160
