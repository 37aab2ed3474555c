"""Real runs whose processes share memory for large blocks."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
from tests.kills.command import descendants

import outpace as library
from outpace.engine.control import Control

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes"),
]
# A model of 549 kB. A server alone steps in chunks.
TASK = """
import outpace
import torch


def make():
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.randn(64, 370, generator=draw) for _ in range(2))
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(370, 370), torch.nn.functional.mse_loss
    return outpace.Task(model=model, loss=loss, train=(x, y), test=(x, y))
"""


def note_mapped(most: dict[str, int]) -> None:
    """Note the most pieces of shared memory that each process of the run has had mapped."""
    for pid, name in descendants(os.getpid()).items():
        if name.startswith(("worker-", "server-")):
            with contextlib.suppress(OSError):  # it has ended
                pieces = Path(f"/proc/{pid}/maps").read_text().count("memfd:outpace")
                most[name] = max(most.get(name, 0), pieces)


def test_bsp_over_shared_memory_is_bitwise_the_run_in_virtual_time(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    config = {
        "task": {"kind": "python", "target": f"{tmp_path}/task.py:make"},
        "workers": 2,
        "servers": 1,
        "batch_size": 8,
        "sync": {"kind": "bsp", "wire": "bf16"},
        "optimizer": {"kind": "adam", "lr": 0.01},
        "compute": {"kind": "constant", "mean_s": 0.01},
        "deterministic": True,
        "probe": False,
        "shared_memory": True,
        "stop": {"iterations": 60},
    }
    most: dict[str, int] = {}

    def control(control: Control) -> None:
        for tenth in range(1, 100):
            control.at(tenth / 10, lambda: note_mapped(most))

    result = library.run(config, control=control)
    expected = library.simulate(config).summary["parameters_digest"]
    assert result.summary["parameters_digest"] == expected
    assert set(most) == {"worker-0", "worker-1", "server-0"}
    assert all(most.values()), most
