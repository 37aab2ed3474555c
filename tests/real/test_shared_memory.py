"""Real runs whose processes share memory for large blocks."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
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
WIDTH = 370
TASK = """
import outpace
import torch


def make():
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.randn(64, WIDTH, generator=draw) for _ in range(2))
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(WIDTH, WIDTH), torch.nn.functional.mse_loss
    return outpace.Task(model=model, loss=loss, train=(x, y), test=(x, y))
"""


def write_task(folder: Path, width: int) -> None:
    (folder / "task.py").write_text(TASK.replace("WIDTH", str(width)))


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    """A model of 549 kB, 275 kB on each of two servers. A server alone steps in chunks."""
    write_task(folder, WIDTH)
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


def all_mapped() -> dict[str, int]:
    """Return how many pieces of shared memory each process of the run has mapped."""
    found = {}
    for name, pid in processes().items():
        with contextlib.suppress(OSError):  # it has ended
            found[name] = mapped(pid)
    return found


def watched(control: Control, look: Callable[[], None]) -> None:
    """Look every tenth of a second, for a few seconds; the run may end before."""
    for tenth in range(1, 100):
        control.at(tenth / 10, look)


def most_mapped(seen: dict[str, int]) -> Callable[[Control], None]:
    """Return a function `control` that notes the most pieces that each process had mapped."""

    def look() -> None:
        for name, count in all_mapped().items():
            seen[name] = max(seen.get(name, 0), count)

    return lambda control: watched(control, look)


@pytest.mark.parametrize(
    ("optimizer", "servers", "wire"),
    [
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
    result = library.run(made, control=most_mapped(seen))
    expected = library.simulate(made).summary["parameters_digest"]
    assert result.summary["parameters_digest"] == expected
    assert set(seen) == {"worker-0", "worker-1", *(f"server-{n}" for n in range(servers))}
    assert all(seen.values()), seen
