"""Real runs of scripts whose servers die and come back alone, while the scripts go on."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.support.paths import SCRIPTS
from tests.support.saved_runs import once_saved

from outpace import run
from outpace.record.event_log import LOG

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
WORKERS, STEPS = 2, 150
CONFIG: dict[str, Any] = {
    "task": {
        "kind": "script",
        "path": str(SCRIPTS / "ledger_of_pushes.py"),
        "arguments": [str(WORKERS * STEPS)],
    },
    "workers": WORKERS,
    "servers": 2,
    "sync": {"kind": "asp"},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.02},
    "checkpoint": {"every_s": 0.3},
}


def counts(folder: Path) -> torch.Tensor:
    """Return how often each gradient is in the result, at each of two servers."""
    entries = load_file(folder / "model.safetensors")
    found = torch.stack([entries["first"], entries["second"]]) * -WORKERS
    return found.round(decimals=3)


def require_counted(folder: Path, summary: dict[str, Any]) -> None:
    """Nothing counts twice, and exactly what is missing is counted."""
    found = counts(folder)
    assert set(found.unique().tolist()) <= {0.0, 1.0}
    assert int((found == 0).any(dim=0).sum()) == summary["updates_lost"]
    assert summary["status"] == "complete"


def events(folder: Path) -> Counter[str]:
    return Counter(json.loads(line)["event"] for line in (folder / LOG).read_text().splitlines())


def test_a_server_comes_back_alone_while_the_scripts_go_on_with_the_next_sample(tmp_path):
    runs, said, folder = [], [], tmp_path / "run"

    def kill() -> None:
        os.kill(runs[0].launcher.pids["server-1"], signal.SIGKILL)

    control = once_saved(folder, kill, number=3)
    result = run(CONFIG, folder, watch=runs.append, log=said.append, control=control)
    summary = result.summary
    assert (summary["restarts"], summary["iterations"]) == (1, [STEPS] * WORKERS)
    require_counted(folder, summary)
    assert counts(folder)[0].eq(1).all()  # the other server has all of them
    assert summary["updates_lost"] > 0
    (line,) = said
    assert line.endswith(", and the workers go on")
    found = events(folder)
    assert (found["launched"], found["joined"], found["server-back"]) == (1, 5, 1)
    # Each sample is used by one step, and each step is in the records once.
    assert sorted(result.metrics["sample"].to_pylist()) == list(range(WORKERS * STEPS))
    rows = result.trace.to_pylist()
    begun = [(each["worker"], each["iteration"]) for each in rows if each["event"] == "iteration"]
    assert len(begun) == len(set(begun)) == WORKERS * STEPS
    gaps = [each for each in rows if each["event"] == "gap"]
    assert sum(each["clock"] for each in gaps) == summary["updates_lost"]


def test_what_is_lost_is_counted_if_a_worker_dies_with_both_servers(tmp_path):
    runs, folder = [], tmp_path / "run"

    def kill() -> None:
        for name in ("server-0", "server-1", "worker-1"):
            os.kill(runs[0].launcher.pids[name], signal.SIGKILL)

    result = run(CONFIG, folder, watch=runs.append, control=once_saved(folder, kill, number=3))
    assert result.summary["restarts"] == 3
    # The script goes on with the next sample, so those in between are lost: none is used twice.
    require_counted(folder, result.summary)
    assert result.summary["iterations"] == [STEPS] * WORKERS
    assert "group-restart" not in events(folder)
