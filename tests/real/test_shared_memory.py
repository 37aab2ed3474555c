"""Real runs whose processes share memory for large blocks."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kills.command import descendants

import outpace as library
from outpace.engine.control import Control

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes"),
]
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


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    """A model of 549 kB, 275 kB on each of two servers. A server alone steps in chunks."""
    (folder / "task.py").write_text(TASK)
    return {
        "task": {"kind": "python", "target": f"{folder}/task.py:make"},
        "workers": 2,
        "servers": 2,
        "batch_size": 8,
        "compute": {"kind": "constant", "mean_s": 0.01},
        "deterministic": True,
        "probe": False,
        "shared_memory": True,
        "stop": {"iterations": 60},
        **changes,
    }


def processes() -> dict[str, int]:
    return {
        name: pid
        for pid, name in descendants(os.getpid()).items()
        if name.startswith(("worker-", "server-"))
    }


def mapped(pid: int) -> int:
    """Return how many pieces of shared memory a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:outpace")


@pytest.mark.parametrize(
    ("optimizer", "servers", "wire"),
    [
        ({"kind": "sgd", "lr": 0.1}, 2, "full"),
        ({"kind": "sgd", "lr": 0.1, "momentum": 0.9}, 1, "full"),
        ({"kind": "adam", "lr": 0.01}, 1, "bf16"),
    ],
)
def test_bsp_over_shared_memory_is_bitwise_the_run_in_virtual_time(
    tmp_path, optimizer, servers, wire
):
    made = config(
        tmp_path,
        servers=servers,
        sync={"kind": "bsp", "wire": wire},
        optimizer=optimizer,
    )
    seen: dict[str, int] = {}

    def look(control: Control) -> None:
        def now() -> None:
            seen.update({name: mapped(pid) for name, pid in processes().items()})

        control.at(0.4, now)

    result = library.run(made, control=look)
    expected = library.simulate(made).summary["parameters_digest"]
    assert result.summary["parameters_digest"] == expected
    assert set(seen) == {"worker-0", "worker-1", *(f"server-{n}" for n in range(servers))}
    assert all(seen.values()), seen


def test_a_run_over_shared_memory_survives_its_processes_and_leaves_nothing(tmp_path):
    made = config(
        tmp_path,
        sync={"kind": "ssp", "staleness": 2},
        checkpoint={"every_updates": 20},
        stop={"iterations": 150},
    )
    killed: list[int] = []

    def kill(name: str) -> None:
        killed.append(processes()[name])
        os.kill(killed[-1], signal.SIGKILL)

    def control(control: Control) -> None:
        control.at(0.4, lambda: kill("worker-1"))
        control.at(0.9, lambda: kill("server-0"))

    result = library.run(made, tmp_path / "run", control=control)
    summary = result.summary
    assert summary["status"] == "complete"
    assert summary["restarts"] == len(killed) == 2
    assert summary["iterations"] == [150, 150]
    assert not processes()
