"""Runs with failures that have a folder: the same results, and they can be resumed."""

import json

import pyarrow.parquet as pq
import pytest

import outpace
from outpace.experiment import recorded_run

CONFIG = {
    "seed": 3,
    "task": {"kind": "quadratic", "eigenvalues": [0.1, 0.4, 1.0, 1.5], "noise": 0.1},
    "workers": 3,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
    "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "evaluate": {"every_updates": 5},
    "stop": {"iterations": 24},
    "checkpoint": {"every_updates": 5},
}
RECOVERY = {"detected_s": 0.01, "worker_s": 0.1, "servers_s": 0.2}
WITH_SERVERS = {
    "sync": {"kind": "bsp"},
    "servers": 2,
    "faults": {
        "recovery": RECOVERY,
        "schedule": [{"at_s": 0.9, "server": 1}, {"at_s": 2.2, "server": 0}],
    },
}
WITHOUT = {
    "sync": {"kind": "ssgd"},
    "faults": {
        "recovery": RECOVERY,
        "schedule": [{"at_s": 0.9, "worker": 1}, {"at_s": 2.2, "worker": 0}],
    },
}


@pytest.fixture(autouse=True)
def without_reports(monkeypatch):
    monkeypatch.setattr(recorded_run.RecordedRun, "_report", lambda *_: None)


@pytest.mark.parametrize("changes", [WITH_SERVERS, WITHOUT])
def test_with_a_folder_the_results_are_those_without(tmp_path, changes):
    kept = outpace.simulate({**CONFIG, **changes})
    written = outpace.simulate({**CONFIG, **changes}, tmp_path / "run")
    for key in ("faults", "restarts", "virtual_time_s", "parameters_digest", "iterations"):
        assert written.summary[key] == kept.summary[key]
    assert kept.summary["restarts"] == 2
    assert written.metrics.equals(kept.metrics)
    rows = pq.read_table(tmp_path / "run" / "trace.parquet").to_pylist()
    rows = [row for row in rows if row["event"] != "checkpoint"]  # a run without folder has none
    assert rows == kept.trace.to_pylist()


def test_the_log_says_which_process_was_lost_and_how_the_run_went_on(tmp_path):
    faults = {**WITH_SERVERS["faults"]}
    faults["schedule"] = [{"at_s": 0.9, "server": 1}, {"at_s": 2.2, "worker": 0}]
    outpace.simulate({**CONFIG, **WITH_SERVERS, "faults": faults}, tmp_path / "run")
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    said = {each["event"]: each for each in found}  # the last of each event
    events = [each["event"] for each in found if each["event"] != "checkpoint"]
    assert events == [
        *("start", "training", "lost", "group-restart", "training"),
        *("lost", "restarted", "began", "end"),
    ]
    assert said["group-restart"]["fields"]["cause"] == "server-1 was killed by SIGKILL"
    assert said["lost"]["role"] == said["restarted"]["role"] == "worker-0"
    assert (said["lost"]["generation"], said["restarted"]["generation"]) == (0, 1)
    assert said["end"]["fields"]["restarts"] == 2


@pytest.mark.parametrize("changes", [WITH_SERVERS, WITHOUT])
def test_a_run_with_failures_that_was_interrupted_goes_on(tmp_path, changes):
    def control(run):
        def fail():
            raise outpace.RunError("the power is off")

        run.at(1.9, fail)  # after the first failure

    plain = outpace.simulate({**CONFIG, **changes, "faults": None})
    with pytest.raises(outpace.RunError, match="the power is off"):
        outpace.simulate({**CONFIG, **changes}, tmp_path / "run", control=control)
    found = outpace.simulate(resume=tmp_path / "run")
    assert found.summary["restarts"] == 2
    assert found.summary["parameters_digest"] == plain.summary["parameters_digest"]
    config = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert config["status"] == "complete"
    restarts = [row["start_ns"] for row in found.trace.to_pylist() if row["event"] == "restart"]
    assert restarts[0] == 900_000_000
    assert restarts[-1] == 2_200_000_000
