"""Adaptive real runs that are interrupted, lose processes, and have other workers."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.runtimes import rows
from tests.support.saved_runs import give_up, once

from outpace import run, simulate
from outpace.record.checkpoints import Checkpoints

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
BASE: dict[str, Any] = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0]},
    "workers": 3,
    "servers": 2,
    "optimizer": {"kind": "sgd", "lr": 0.01},
    "compute": {"kind": "constant", "mean_s": 0.01},
    "probe": False,
}
SAVED = {"checkpoint": {"every_s": 0.1}}


def saved_switches(folder: Path) -> int:
    """Return how many switches the newest checkpoint has."""
    newest = Checkpoints(folder).newest(lambda _: None)
    return 0 if newest is None else newest.index.adaptive.get("switches", 0)


def numbers_of_switches(result: Any) -> list[int]:
    return sorted(row["version"] for row in rows(result, "switch"))


def test_a_run_that_is_resumed_goes_on_with_the_setting_in_force(tmp_path):
    folder = tmp_path / "run"
    sync = {"kind": "adaptive", "rule": "sync-switch", "after": 5}
    config = {**BASE, **SAVED, "sync": sync, "stop": {"iterations": 300}}
    with pytest.raises(Exception, match="that is enough"):
        run(config, folder, control=once(lambda: saved_switches(folder) == 1, give_up))
    result = run(resume=folder)
    summary = result.summary
    assert summary["status"] == "complete"
    assert [(each["from"], each["to"]) for each in summary["switches"]] == [("bsp", "asp")]
    assert numbers_of_switches(result) == [0]
    at = rows(result, "switch")[0]["start_ns"] + 3e8  # servers know of it
    later = [row for row in rows(result, "pull") if row["start_ns"] > at]
    assert {row["reason"] for row in later} == {"unbounded"}
    assert summary["iterations"] == [300] * 3


@linux
def test_after_the_death_of_a_server_all_go_on_with_the_setting_of_the_checkpoint(tmp_path):
    folder, runs = tmp_path / "run", []

    def kill() -> None:
        os.kill(runs[0].launcher.pids["server-1"], signal.SIGKILL)

    slow = {**BASE["compute"], "slow": [{"workers": [2], "factor": 12.0}]}
    sync = {
        "kind": "adaptive",
        "stale": False,
        "gain_percent": 200.0,
        "window": 3,
        "noise_scale": 10.0,
    }
    config = {**BASE, **SAVED, "sync": sync, "compute": slow, "stop": {"iterations": 300}}
    control = once(lambda: saved_switches(folder) == 1, kill)
    result = run(config, folder, watch=runs.append, control=control)
    summary = result.summary
    assert (summary["status"], summary["restarts"]) == ("complete", 1)
    (switch,) = summary["switches"]  # it was not decided again
    assert switch["from"] == "quorum 3"
    assert switch["to"].startswith("quorum 3, grace ")
    assert numbers_of_switches(result) == [0]
    (again,) = rows(result, "restart")
    later = [row for row in rows(result, "push") if row["start_ns"] > again["end_ns"]]
    # It stops, and is waited for in no iteration.
    assert {row["outcome"] for row in later if row["worker"] == 2} == {"abstained"}


@linux
def test_the_quorum_follows_the_number_of_workers_that_take_part(tmp_path):
    folder, runs, said = tmp_path / "run", [], []

    def events(kind: str) -> list[dict[str, Any]]:
        text = (folder / "log.jsonl").read_text("utf-8")
        found = [json.loads(line) for line in text.splitlines()]
        return [each["fields"] for each in found if each["event"] == kind]

    others = "the run goes on with"  # the beginning of the reason

    def control(control: Any) -> None:
        def look() -> None:
            switches = sum(each["reason"].startswith(others) for each in events("switch"))
            if switches == 0 and not said and min(control.summary()["iterations"]) > 3:
                said.append("killed")
                os.kill(runs[0].launcher.pids["worker-2"], signal.SIGKILL)
            elif switches == 1 and said == ["killed"]:
                said.append(control.scale(workers=4))
            elif switches == 2 and events("scaled"):
                done = max(control.summary()["iterations"])
                said.append(done)
                if done > said[2] + 20:
                    control._coordinator.end("the test has seen enough")
                    return
            control.at(control._now() / 1e9 + 0.05, look)

        control.at(0.1, look)

    # No other setting is ever so far ahead.
    sync = {
        "kind": "adaptive",
        "stale": False,
        "gain_percent": 1000.0,
        "noise_scale": 1e9,
        "window": 100,
    }
    config = {**BASE, "sync": sync, "on_worker_loss": "continue", "stop": {"iterations": 5000}}
    result = run(config, folder, watch=runs.append, control=control)
    switches = result.summary["switches"]
    lost, joined = (each for each in switches if each["reason"].startswith(others))
    quorums = [each[key][:8] for each in (lost, joined) for key in ("from", "to")]
    assert quorums == ["quorum 3", "quorum 2", "quorum 2", "quorum 4"]
    assert joined["reason"] == "the run goes on with 4 workers, before it had 2"
    pushes = [row for row in rows(result, "push") if row["outcome"] == "applied"]
    last = max(row["iteration"] for row in pushes)
    found = {row["worker"] for row in pushes if row["iteration"] > last - 10}
    assert found == {0, 1, 2, 3}  # none is left out for long


def test_adacomm_is_resumed_bitwise_with_its_period(tmp_path):
    folder = tmp_path / "run"
    every = {"kind": "adaptive", "rule": "adacomm", "every": 32, "interval_s": 1e-6, "factor": 0.8}
    config = {**BASE, "servers": 1, "sync": every, "stop": {"iterations": 260}}
    expected = simulate(config)
    saved = {**config, **SAVED, "deterministic": True}
    with pytest.raises(Exception, match="that is enough"):
        run(saved, folder, control=once(lambda: saved_switches(folder) >= 1, give_up))
    result = run(resume=folder)
    told = [
        [(each["iteration"], each["from"], each["to"], each["reason"]) for each in switches]
        for switches in (result.summary["switches"], expected.summary["switches"])
    ]
    assert told[0] == told[1] != []
    assert numbers_of_switches(result) == list(range(len(told[0])))
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
