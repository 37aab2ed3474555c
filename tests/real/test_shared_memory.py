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
    x, y = (torch.randn(64, 300, generator=draw) for _ in range(2))
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(300, 300), torch.nn.functional.mse_loss
    return outpace.Task(model=model, loss=loss, train=(x, y), test=(x, y))
"""


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    """A model of 361 kB, 181 kB on each of two servers."""
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


def killed_when(control: Control, at_s: float, name: str, killed: list[int]) -> None:
    def kill() -> None:
        killed.append(processes()[name])
        os.kill(killed[-1], signal.SIGKILL)

    control.at(at_s, kill)


def mapped(pid: int) -> int:
    """Return how many pieces of shared memory a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:outpace")


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bsp_over_shared_memory_is_bitwise_the_run_in_virtual_time(tmp_path, momentum):
    made = config(
        tmp_path,
        sync={"kind": "bsp"},
        optimizer={"kind": "sgd", "lr": 0.1, "momentum": momentum},
    )
    seen: dict[str, int] = {}

    def look(control: Control) -> None:
        def now() -> None:
            seen.update({name: mapped(pid) for name, pid in processes().items()})

        control.at(0.4, now)

    result = library.run(made, control=look)
    expected = library.simulate(made).summary["parameters_digest"]
    assert result.summary["parameters_digest"] == expected
    assert set(seen) == {"worker-0", "worker-1", "server-0", "server-1"}
    assert all(seen.values()), seen


def test_a_run_over_shared_memory_survives_its_processes_and_leaves_nothing(tmp_path):
    made = config(
        tmp_path,
        sync={"kind": "ssp", "staleness": 2},
        checkpoint={"every_updates": 20},
        stop={"iterations": 150},
    )
    killed: list[int] = []

    def control(control: Control) -> None:
        killed_when(control, 0.4, "worker-1", killed)
        killed_when(control, 0.9, "server-0", killed)

    result = library.run(made, tmp_path / "run", control=control)
    summary = result.summary
    assert summary["status"] == "complete"
    assert summary["restarts"] == len(killed) == 2
    assert summary["iterations"] == [150, 150]
    assert not processes()


def without_servers(folder: Path, sync: dict[str, Any], **changes: Any) -> dict[str, Any]:
    changes = {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}, **changes}
    return {**config(folder, sync=sync, **changes), "servers": 1, "workers": 3}


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "ssgd"},
        {"kind": "ssgd", "wire": "bf16"},
        {"kind": "local-sgd", "every": 5},
        {"kind": "hpsgd", "window": 1, "start_together": True},
    ],
    ids=["ssgd", "bf16", "local-sgd", "hpsgd"],
)
def test_a_run_with_all_reduces_through_memory_is_bitwise_one_that_adds_in_order(tmp_path, sync):
    made = without_servers(tmp_path, sync)
    seen: dict[str, int] = {}
    said: list[str] = []

    def look(control: Control) -> None:
        control.at(
            0.4, lambda: seen.update({name: mapped(pid) for name, pid in processes().items()})
        )

    # `deterministic` is for Gloo: sums in memory are always in this order.
    result = library.run({**made, "deterministic": False}, control=look, log=said.append)
    if "wire" in sync:  # virtual time does not round what travels
        expected = library.run({**made, "shared_memory": False})
    else:
        expected = library.simulate(made)
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert seen.keys() == {"worker-0", "worker-1", "worker-2"}
    assert min(seen.values()) >= 4, seen  # two of its own, and one of each other worker
    assert said == []


def test_after_the_death_of_a_worker_all_reduces_through_memory_go_on_from_the_checkpoint(tmp_path):
    made = without_servers(
        tmp_path, {"kind": "ssgd"}, checkpoint={"every_updates": 10}, stop={"iterations": 100}
    )
    killed: list[int] = []
    result = library.run(
        made,
        tmp_path / "run",
        control=lambda control: killed or killed_when(control, 0.5, "worker-1", killed),
    )
    summary = result.summary
    assert (summary["status"], summary["restarts"]) == ("complete", len(killed)) == ("complete", 1)
    assert summary["parameters_digest"] == library.simulate(made).summary["parameters_digest"]
    assert not processes()


def test_the_others_go_on_through_memory_without_a_worker_that_was_killed(tmp_path):
    made = without_servers(
        tmp_path, {"kind": "hpsgd"}, on_worker_loss="continue", stop={"iterations": 100}
    )
    killed: list[int] = []
    seen: list[int] = []

    def control(control: Control) -> None:
        killed_when(control, 0.4, "worker-2", killed)
        control.at(0.8, lambda: seen.extend(mapped(pid) for pid in processes().values()))

    summary = library.run(made, control=control).summary
    assert summary["status"] == "complete"
    assert summary["iterations"][:2] == [100, 100]
    assert summary["iterations"][2] < 100
    assert seen == [4, 4]  # two of each worker that is left
    assert not processes()
