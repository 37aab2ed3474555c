"""`overlap: backward` on real processes: parts are sent in backward, nothing else changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.script_runs import script_run

from outpace.experiment.running import run

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


def sent_before_the_end(folder: Path, server: int) -> list[bool]:
    """Return, for each push to a server, whether it was sent before its computation had ended."""
    rows = pq.read_table(folder / "timing.parquet").to_pylist()
    ends = {
        (row["worker"], row["iteration"]): row["arrived_ns"]
        for row in rows
        if row["what"] == "compute"
    }
    pushes = [row for row in rows if row["what"] == "push" and row["server"] == server]
    return [row["sent_end_ns"] < ends[row["worker"], row["iteration"]] for row in pushes]


def test_a_task_under_bsp_ends_with_bitwise_the_same_parameters(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    made = {
        "task": {"kind": "python", "target": f"{tmp_path}/task.py:make"},
        "workers": 2,
        "servers": 2,
        "batch_size": 8,
        "sync": {"kind": "bsp"},
        "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
        "deterministic": True,
        "probe": False,
        "stop": {"iterations": 12},
    }
    plain = run(made, tmp_path / "plain")
    overlapped = run({**made, **OVERLAP}, tmp_path / "overlapped")
    for key in ("parameters_digest", "gradients_applied", "iterations", "messages", "bytes_sent"):
        assert overlapped.summary[key] == plain.summary[key]
    assert sent_before_the_end(tmp_path / "overlapped", server=1) == [True] * 24
    assert sent_before_the_end(tmp_path / "plain", server=1) == [False] * 24


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are killed by themselves")
def test_a_script_that_computes_iterations_again_after_a_death_pushes_none_of_them_twice(tmp_path):
    # The parameters say how often each sample was used; each worker's gradient counts half.
    asp = {"kind": "asp"}
    made = script_run("ledger_of_pushes.py", 160, tmp_path / "died", mean_s=0.0, sync=asp)
    made.pop("compute")
    result = run({**made, **OVERLAP, "checkpoint": {"every_s": 1000}}, tmp_path / "run")
    assert (tmp_path / "died").exists()
    assert result.summary["restarts"] == 1
    assert result.summary["iterations"] == [80, 80]
    for entries in result.parameters.values():
        assert entries.tolist() == [-0.5] * 160
