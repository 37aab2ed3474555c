"""Adaptive runs in virtual time that are interrupted: the rule goes on with what it knows."""

from __future__ import annotations

import os

import pytest
from tests.support.runtimes import rows

import outpace
from outpace.experiment import recorded_run

SLOW = {"workers": [2], "factor": 5.0, "from_s": 1.05, "until_s": 2.9}
CONFIG = {
    "seed": 3,
    "task": {"kind": "quadratic", "eigenvalues": [0.1, 0.4, 1.5], "noise": 0.1},
    "workers": 3,
    "servers": 2,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.1, "slow": [SLOW]},
    "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "stop": {"iterations": 36},
}
PROGRESS = {"sync": {"kind": "adaptive", "stale": False}}
SWITCH = {"sync": {"kind": "adaptive", "rule": "sync-switch", "after": 9}}
ADACOMM = {
    "sync": {"kind": "adaptive", "rule": "adacomm", "every": 8, "interval_s": 0.8},
    "servers": 1,
}
NETWORK = {"network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e6}}


@pytest.fixture(autouse=True)
def without_what_takes_most_of_the_time(monkeypatch):
    monkeypatch.setattr(recorded_run, "write_report", lambda *_: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def interrupted(out, at_s, every_updates=3, **changes):
    """Leave the folder of a run that failed at this time."""

    def control(run):
        def fail():
            raise outpace.RunError("the power is off")

        run.at(at_s, fail)

    config = {**CONFIG, "checkpoint": {"every_updates": every_updates}, **changes}
    with pytest.raises(outpace.RunError, match="the power is off"):
        outpace.simulate(config, out, control=control)
    return out


def told(result):
    return [
        (each["iteration"], each["from"], each["to"], each["reason"])
        for each in result.summary["switches"]
    ]


@pytest.mark.parametrize(("at_s", "network"), [(0.55, {}), (0.95, NETWORK)])
def test_a_run_that_is_interrupted_under_bsp_is_bitwise_the_one_without_interruption(
    tmp_path, at_s, network
):
    expected = outpace.simulate({**CONFIG, **SWITCH, **network})
    result = outpace.simulate(resume=interrupted(tmp_path / "run", at_s, **SWITCH, **network))
    assert int(result.summary["resumed_from"][-6:]) > 1
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert told(result) == told(expected) != []
    if not network:  # with one, workers begin again a message later
        assert result.summary["switches"] == expected.summary["switches"]
    assert [row["version"] for row in rows(result, "switch")] == list(range(len(told(result))))


@pytest.mark.parametrize("at_s", [1.2, 2.9])
def test_adacomm_goes_on_bitwise_with_its_period(tmp_path, at_s):
    expected = outpace.simulate({**CONFIG, **ADACOMM})
    result = outpace.simulate(resume=interrupted(tmp_path / "run", at_s, 3, **ADACOMM))
    assert int(result.summary["resumed_from"][-6:]) > 1
    assert result.summary["switches"] == expected.summary["switches"] != []
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert [row["version"] for row in rows(result, "switch")] == list(range(len(told(result))))


def test_the_setting_of_the_checkpoint_is_in_force_from_the_first_iteration_on(tmp_path):
    """Worker 2 is left out at the checkpoint, and what is known of it stays."""
    run = interrupted(tmp_path / "run", 2.6, **PROGRESS)
    result = outpace.simulate(resume=run)
    before = [each for each in result.summary["switches"] if each["time_s"] < 2.5]
    assert before == outpace.simulate({**CONFIG, **PROGRESS}).summary["switches"][: len(before)]
    assert before[-1]["to"].startswith("quorum 2")
    counted = [row for row in rows(result, "push") if 2.6e9 < row["end_ns"] < 2.85e9]
    assert {row["worker"] for row in counted if row["outcome"] == "applied"} == {0, 1}


def test_asp_stays_in_force_after_sync_switch_has_ordered_it(tmp_path):
    result = outpace.simulate(resume=interrupted(tmp_path / "run", 1.8, **SWITCH))
    assert [each["to"] for each in result.summary["switches"]] == ["asp"]
    assert len(rows(result, "switch")) == 1
    at = rows(result, "switch")[0]["start_ns"]
    pulls = [row for row in rows(result, "pull") if row["start_ns"] > at]
    assert {row["reason"] for row in pulls} == {"unbounded"}


@pytest.mark.parametrize("workers", [4, 2])
def test_with_another_number_of_workers_a_quorum_of_all_is_one_of_all_again(tmp_path, workers):
    even = {"compute": {"kind": "constant", "mean_s": 0.1}, "stop": {"iterations": 14}}
    run = interrupted(tmp_path / "run", 0.95, **PROGRESS, **even)
    result = outpace.simulate(resume=run, workers=workers)
    _, first, *_ = result.summary["switches"]
    assert first["from"] == "quorum 3, grace 10 ms"
    assert first["to"] == f"quorum {workers}, grace 10 ms"
    assert first["reason"] == f"the run goes on with {workers} workers, before it had 3"
    applied = [row for row in rows(result, "push") if row["outcome"] == "applied"]
    last = [row for row in applied if row["iteration"] == 13]
    assert {row["worker"] for row in last} == set(range(workers))
