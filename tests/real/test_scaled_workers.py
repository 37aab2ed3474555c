"""Workers of real runs join and leave while the others go on.

In the ledger task each sample has two parameters of its own, one on each of two servers, and is
used once, so the parameters show which gradients they have, and by what each was divided.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.kills.family import TASK

from outpace import ConfigError, run
from outpace.real.control import RealControl
from outpace.record.event_log import LOG

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
ITERATIONS = 5000  # more than there is time for: a run ends some iterations after its last change
MORE = 30


def config(sync: dict[str, Any], **beside: Any) -> dict[str, Any]:
    samples = 3 * ITERATIONS
    arguments = {"samples": samples}
    return {
        "task": {"kind": "python", "target": f"{TASK}:make_task", "arguments": arguments},
        "workers": 2,
        "servers": 2,
        "batch_size": 1,
        "sync": sync,
        "deterministic": True,
        "optimizer": {"kind": "sgd", "lr": 1.0},
        "probe": False,
        "compute": {"kind": "constant", "mean_s": 0.005},
        "stop": {"iterations": ITERATIONS},
        "evaluate": {"every_updates": 10**9},
        **beside,
    }


def scaling(
    folder: Path, *steps: int, then: Callable[[], None] = lambda: None
) -> Callable[[Any], None]:
    """Return a control function that scales to these numbers of workers, one after the other.

    It stops the run some iterations after the last change.
    """

    def control(control: RealControl) -> None:
        left, due = list(steps), 0

        def look() -> None:
            nonlocal due
            fastest, done = max(control.summary()["iterations"]), len(scaled(folder))
            if done == len(steps) - len(left):  # the last change is done
                due = due or fastest + MORE
                if fastest >= due and not left:
                    control._coordinator.end("the test has seen enough")
                    return
                if fastest >= due:
                    due = 0
                    control.scale(workers=left.pop(0))
                    if not left:
                        then()
            control.at(control._now() / 1e9 + 0.02, look)

        control.at(0.1, look)

    return control


def scaled(folder: Path) -> list[dict[str, Any]]:
    """The fields of the log's lines about other numbers of workers."""
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [line["fields"] for line in lines if line["event"] == "scaled"]


def test_bsp_takes_the_mean_of_as_many_workers_as_take_part_and_uses_each_sample_once(tmp_path):
    folder = tmp_path / "run"
    summary = run(config({"kind": "bsp"}), folder, control=scaling(folder, 3, 2)).summary
    assert summary["updates_lost"] == summary["restarts"] == 0
    up, down = scaled(folder)
    assert [up["workers"], down["workers"]] == [3, 2]
    entries = load_file(folder / "model.safetensors")
    first, second = -entries["first"], -entries["second"]
    assert torch.equal(first, second)  # both servers have the same gradients
    of_three, of_two = ((first * n).sub(1).abs() < 1e-6 for n in (3, 2))
    assert bool((of_three | of_two | (first == 0)).all())
    assert int(of_three.sum()) == 3 * (down["first"] - up["first"])
    used = int(of_three.sum() + of_two.sum())
    assert used == summary["gradients_applied"]
