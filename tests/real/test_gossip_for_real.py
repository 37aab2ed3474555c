"""Gossip in real processes: no worker waits longer than one module; the mean does not change."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import torch
from tests.support.paths import SCRIPTS

from outpace.experiment.results import Result
from outpace.experiment.running import run

pytestmark = pytest.mark.slow
SCRIPT = SCRIPTS / "gossip.py"
# In one forward pass, worker 1 enters modules until worker 0 has begun four more of its own:
# of these, the first three had to average with worker 1. Worker 0 begins after worker 1.
LONG = """\
import multiprocessing, pathlib, time
import torch
import outpace

NAME = multiprocessing.current_process().name
BEGUN = pathlib.Path(__file__).with_name("begun")  # by worker 1
PASSES = pathlib.Path(__file__).with_name("passes")  # a byte for each that worker 0 began
LIMIT_S = 60  # then the test fails

def until(condition, enter):
    end = time.monotonic() + LIMIT_S
    while not condition():
        enter()
        assert time.monotonic() < end, f"{NAME} waited in vain"

class Long(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.calls = 0

    @torch.no_grad()
    def enter(self):
        self.layer(torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:  # the task's check, before the training
            pass
        elif NAME == "worker-0":
            with PASSES.open("ab") as passes:
                passes.write(b"1")
            until(BEGUN.exists, self.enter)
        elif NAME == "worker-1" and not BEGUN.exists():
            PASSES.touch()
            before = PASSES.stat().st_size
            BEGUN.touch()
            until(lambda: PASSES.stat().st_size >= before + 4, self.enter)
        return self.layer(x)

def make_task():
    x = torch.ones(8, 3)
    return outpace.Task(Long(), lambda output, y: (output - y).square().mean(), (x, 2 * x))
"""


def rows(result: Result, event: str, worker: int) -> list[dict[str, Any]]:
    return [
        row for row in result.trace.to_pylist() if row["event"] == event and row["worker"] == worker
    ]


def test_who_computes_is_averaged_with_at_the_next_of_its_modules(tmp_path):
    """Worker 1 stays in an iteration until worker 0 has averaged with it at least twice."""
    (tmp_path / "task.py").write_text(LONG)
    task = {"kind": "python", "target": f"{tmp_path / 'task.py'}:make_task"}
    result = run(
        {
            "task": task,
            "workers": 2,
            "sync": {"kind": "gossip"},
            "optimizer": {"kind": "sgd", "lr": 1e-3},
            "batch_size": 4,
            "stop": {"iterations": 6},
        }
    )
    averages = rows(result, "all-reduce", 0)

    def within(step: dict[str, Any]) -> int:
        """Return the number of averages that began and ended while worker 1 computed."""
        return sum(
            step["start_ns"] < row["start_ns"] and row["end_ns"] < step["computed_ns"]
            for row in averages
        )

    assert max(map(within, rows(result, "iteration", 1))) > 1


def test_scripts_are_averaged_with_between_their_steps():
    steps = (9, 4, 7)
    scale_of = runpy.run_path(str(SCRIPT))["scale_of"]
    task = {"kind": "script", "path": str(SCRIPT), "arguments": [*map(str, steps)]}
    result = run({"task": task, "workers": len(steps), "sync": {"kind": "gossip"}})
    assert result.summary["iterations"] == list(steps)
    assert result.summary["synchronizations"] > 0
    total = sum(scale_of(rank, step) for rank, n in enumerate(steps) for step in range(n))
    for value in result.parameters.values():
        expected = torch.full((4,), -total / len(steps), dtype=torch.float64)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
