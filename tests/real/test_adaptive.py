"""Adaptive strategies on real processes: the coordinator's rule changes the servers' policy."""

from __future__ import annotations

import json
from collections import Counter

from tests.support.runtimes import rows

from outpace.experiment.running import run, simulate

BASE = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 2.0]},
    "workers": 3,
    "servers": 2,
    "optimizer": {"lr": 0.01},
}


def test_sync_switch_loses_no_gradient_and_counts_none_twice(tmp_path):
    sync = {"kind": "adaptive", "rule": "sync-switch", "after": 3}
    out = tmp_path / "run"
    slow = {"kind": "constant", "mean_s": 0.02}
    result = run({**BASE, "sync": sync, "compute": slow, "stop": {"iterations": 60}}, out)
    (switch,) = result.summary["switches"]
    assert (switch["from"], switch["to"]) == ("bsp", "asp")
    assert switch["iteration"] >= 2
    pushes = rows(result, "push")
    assert {row["outcome"] for row in pushes} == {"applied"}
    keys = {(row["worker"], row["iteration"], row["shard"]) for row in pushes}
    assert len(keys) == len(pushes) == 3 * 60 * 2
    (row,) = rows(result, "switch")
    assert (row["reason"], row["lead"], row["bound"]) == ("share-done", 0, None)
    for pull in rows(result, "pull"):  # no server is asynchronous before the order
        if pull["start_ns"] < row["start_ns"] and pull["end_ns"] < row["start_ns"]:
            assert pull["clock"] > pull["iteration"]
    log = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    (event,) = (each for each in log if each["event"] == "switch")
    assert event["fields"]["after"] == "asp"


def test_real_workers_and_virtual_ones_average_after_the_same_steps():
    every = {"kind": "adaptive", "rule": "adacomm", "every": 6, "interval_s": 1e-6}
    compute = {"kind": "constant", "mean_s": 0.01}
    config = {**BASE, "servers": 1, "sync": every, "compute": compute, "stop": {"iterations": 20}}
    found, expected = run({**config, "deterministic": True}), simulate(config)
    told = [
        [(each["iteration"], each["from"], each["to"], each["reason"]) for each in switches]
        for switches in (found.summary["switches"], expected.summary["switches"])
    ]
    assert told[0] == told[1] != []
    assert found.summary["parameters_digest"] == expected.summary["parameters_digest"]


def test_a_worker_that_is_always_slow_is_left_out_and_every_gradient_is_settled():
    slow = [{"workers": [2], "factor": 6.0}]
    compute = {"kind": "constant", "mean_s": 0.04, "slow": slow}
    sync = {"kind": "adaptive", "stale": False, "gain_percent": 30.0}
    config = {**BASE, "sync": sync, "compute": compute, "stop": {"iterations": 30}}
    result = run({**config, "task": {**BASE["task"], "noise": 0.1}})
    first = result.summary["switches"][0]
    assert first["from"] == "quorum 3"
    assert first["to"].startswith("quorum 3, grace ")  # far less than the worker needs
    outcomes = Counter((row["shard"], row["outcome"]) for row in rows(result, "push"))
    computed = sum(result.summary["iterations"])
    for shard in range(2):
        assert outcomes[shard, "applied"] + outcomes[shard, "dropped"] == computed
        assert outcomes[shard, "abstained"] == result.summary["stopped"]["count"] > 0
    assert "noise_scale" in result.summary  # the servers' measurements have arrived


def test_with_stale_a_real_run_begins_as_asp_over_staleness():
    compute = {"kind": "constant", "mean_s": 0.01}
    sync = {"kind": "adaptive", "stale": True, "gain_percent": 1000.0}  # never another setting
    result = run({**BASE, "sync": sync, "compute": compute, "stop": {"iterations": 10}})
    assert result.summary["switches"] == []
    assert {row["outcome"] for row in rows(result, "push")} == {"applied"}
    assert {row["reason"] for row in rows(result, "pull")} == {"unbounded"}
