"""Real runs whose servers die and come back alone, while the workers go on."""

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
from tests.kills.family import WORKERS, Family
from tests.support.saved_runs import once, once_saved

from outpace import run
from outpace.engine.control import Control
from outpace.record.event_log import LOG
from outpace.record.status import read_status
from outpace.report.read.interruptions import interruptions
from outpace.report.read.runs import read_run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
ITERATIONS = 120
SSP = {"kind": "ssp", "staleness": 2}
KILLED = "was killed by SIGKILL before it was done"


def ledger(sync: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the configuration of a run whose parameters tell which gradients are in them."""
    beside = {"evaluate": {"every_updates": 20}, "checkpoint": {"every_s": 0.3}, **changes}
    return Family(sync, beside=beside).config(ITERATIONS)


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
    assert summary["iterations"] == [ITERATIONS] * WORKERS


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def test_a_server_comes_back_alone_and_all_that_it_lacks_is_counted(tmp_path):
    runs, said, folder = [], [], tmp_path / "run"
    before: dict[str, int] = {}

    def kill() -> None:
        before.update(runs[0].launcher.pids)
        os.kill(before["server-1"], signal.SIGKILL)

    result = run(
        ledger(SSP),
        folder,
        watch=runs.append,
        log=said.append,
        control=once_saved(folder, kill, number=3),
    )
    summary = result.summary
    assert summary["status"] == "complete"
    assert summary["restarts"] == 1
    require_counted(folder, summary)
    found = counts(folder)
    assert found[0].eq(1).all()  # the other server has all of them
    assert summary["updates_lost"] > 0
    (line,) = said
    number = int(line.removesuffix(", and the workers go on").rpartition(" ")[2])
    assert line.startswith(f"server-1 {KILLED}; it comes back from checkpoint ")
    assert number >= 3
    # No process but the server's is started again, and no iteration is repeated.
    events = Counter(each["event"] for each in logged(folder))
    assert (events["launched"], events["joined"], events["group-restart"]) == (1, 6, 0)
    happened = [each for each in logged(folder) if each["role"] == "server-1"]
    names = [each["event"] for each in happened if each["event"] not in ("notice", "gap")]
    assert names == ["joined", "lost", "server-restarted", "joined", "server-back", "finished"]
    assert [each["generation"] for each in happened if each["event"] == "joined"] == [0, 1]
    rows = result.trace.to_pylist()
    begun = [(each["worker"], each["iteration"]) for each in rows if each["event"] == "iteration"]
    assert len(begun) == len(set(begun)) == WORKERS * ITERATIONS
    (restart,) = (each for each in rows if each["event"] == "restart")
    assert (restart["worker"], restart["shard"], restart["version"]) == (None, 1, number)
    assert restart["held_ns"] is None  # nothing is done again
    assert restart["start_ns"] < restart["end_ns"]
    gaps = [each for each in rows if each["event"] == "gap"]
    assert {each["shard"] for each in gaps} == {1}
    assert sum(each["clock"] for each in gaps) == summary["updates_lost"]
    (interruption,) = interruptions(read_run(folder, "run"))
    assert (interruption.who, interruption.is_alone) == ("server 1", True)
    assert result.metrics["updates"].to_pylist() == sorted(result.metrics["updates"].to_pylist())
    assert read_status(folder) is None


@pytest.mark.slow
def test_with_restart_all_nothing_is_lost_but_what_was_on_its_way_at_the_checkpoint(tmp_path):
    runs, folder = [], tmp_path / "run"

    def kill() -> None:
        os.kill(runs[-1].launcher.pids["server-1"], signal.SIGKILL)

    config = ledger({"kind": "asp"}, on_server_loss="restart-all")
    summary = run(config, folder, watch=runs.append, control=once_saved(folder, kill)).summary
    assert summary["restarts"] == 1
    # One push of each worker, which one server had and the other had not when they were saved.
    missing = counts(folder).ne(1).any(dim=0)
    assert int(missing.sum()) == summary["updates_lost"] <= config["workers"]
    assert counts(folder).le(1).all()
    assert [each["event"] for each in logged(folder)].count("group-restart") == 1


CHANGES: dict[str, dict[str, Any]] = {
    "asp": {"sync": {"kind": "asp"}},
    "half of the servers": {
        "sync": {"kind": "asp"},
        "pull": {"quorum_percent": 50, "timeout_s": 0.01},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_both_servers_and_a_worker_die_and_a_server_again_as_it_comes_back(tmp_path, changes):
    runs, folder, killed = [], tmp_path / "run", []

    def kill(*names: str) -> None:
        for name in names:
            killed.append(runs[0].launcher.pids[name])
            os.kill(killed[-1], signal.SIGKILL)

    def control(control: Control) -> None:
        def is_new() -> bool:
            return runs[0].launcher.pids.get("server-0", killed[0]) != killed[0]

        def then() -> None:
            kill("server-0", "server-1", "worker-2")
            once(is_new, lambda: kill("server-0"))(control)

        once_saved(folder, then)(control)

    config = ledger(**changes)
    summary = run(config, folder, watch=runs.append, control=control).summary
    assert summary["restarts"] == 4 == len(set(killed))
    require_counted(folder, summary)
    assert "group-restart" not in {each["event"] for each in logged(folder)}


@pytest.mark.slow
def test_a_server_that_stands_still_for_the_lease_is_replaced_and_not_heard_again(tmp_path):
    runs, said, folder = [], [], tmp_path / "run"

    def stop() -> None:
        os.kill(runs[0].launcher.pids["server-0"], signal.SIGSTOP)

    summary = run(
        ledger(SSP),
        folder,
        watch=runs.append,
        log=said.append,
        control=once_saved(folder, stop),
        lease_s=1.0,
    ).summary
    assert summary["restarts"] == 1
    require_counted(folder, summary)
    (line,) = said
    assert line.startswith("server-0 is lost: its connection closed, or was silent for 1 s; it ")
