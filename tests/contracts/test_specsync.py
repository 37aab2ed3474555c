"""Speculative synchronization in every runtime: what is abandoned is seen, and never counts."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from tests.support.runtimes import (
    ITERATIONS,
    SERVERS,
    WORKERS,
    config,
    every_runtime,
    rows,
)

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.running import run, simulate

SYNCS = {
    "fixed": {"kind": "specsync", "abort_time_s": 0.02, "abort_rate": 0.4},
    "chosen, ssp": {"kind": "specsync", "base": "ssp", "staleness": 3, "epoch_pushes": 2},
    "bf16": {"kind": "specsync", "abort_time_s": 0.02, "abort_rate": 0.4, "wire": "bf16"},
}
every_sync = pytest.mark.parametrize("sync", SYNCS)


@cache
def outcome(run, sync):
    return run(config("asp") | {"sync": SYNCS[sync]})


def again(result):
    """The steps that were begun again."""
    return [(row["worker"], row["iteration"]) for row in rows(result, "resync")]


@every_runtime
@every_sync
def test_every_gradient_is_pushed_and_applied_once_whatever_was_abandoned(run, sync):
    result = outcome(run, sync)
    expected = {
        (worker, shard, iteration)
        for worker in range(WORKERS)
        for shard in range(SERVERS)
        for iteration in range(ITERATIONS)
    }
    pushes = rows(result, "push")
    assert len(pushes) == len(expected)
    assert {(row["worker"], row["shard"], row["iteration"]) for row in pushes} == expected
    assert {row["outcome"] for row in pushes} == {"applied"}
    assert result.summary["gradients_applied"] == WORKERS * ITERATIONS
    assert result.summary["iterations"] == [ITERATIONS] * WORKERS


@every_runtime
@every_sync
def test_a_step_is_begun_again_once_at_most_after_another_pull_of_every_server(run, sync):
    result = outcome(run, sync)
    steps = again(result)
    assert len(steps) == len(set(steps)), "once at most"
    assert steps or run is not simulate, "else this run shows nothing"
    assert all(iteration > 0 for _, iteration in steps), "the first step has not pulled"
    pulls = Counter((row["worker"], row["iteration"]) for row in rows(result, "pull"))
    for worker in range(WORKERS):
        for iteration in range(ITERATIONS):
            twice = (worker, iteration + 1) in steps
            assert pulls[worker, iteration] == SERVERS * (2 if twice else 1)


@every_runtime
@every_sync
def test_the_summary_and_the_iterations_are_what_the_trace_says(run, sync):
    result = outcome(run, sync)
    iterations = {(row["worker"], row["iteration"]): row for row in rows(result, "iteration")}
    found = rows(result, "resync")
    for row in found:
        step = iterations[row["worker"], row["iteration"]]
        assert row["start_ns"] < row["computed_ns"] <= row["end_ns"] == step["start_ns"]
        assert row["clock"] >= 1
        before = iterations[row["worker"], row["iteration"] - 1]
        assert before["end_ns"] <= row["start_ns"]
    if not found:
        assert "resyncs" not in result.summary
        return
    summary = result.summary["resyncs"]
    assert summary["count"] == len(found)
    assert summary["mean_pushes"] == pytest.approx(sum(row["clock"] for row in found) / len(found))
    for key, end, start in (
        ("abandoned_s", "computed_ns", "start_ns"),
        ("pulling_s", "end_ns", "computed_ns"),
    ):
        whole = sum(row[end] - row[start] for row in found)
        assert summary[key] == pytest.approx(whole / WORKERS / 1e9)


@every_runtime
def test_with_ssp_no_pull_is_answered_beyond_the_bound(run):
    for row in rows(outcome(run, "chosen, ssp"), "pull"):
        assert row["iteration"] < row["clock"] + 3


@every_sync
def test_the_same_seed_gives_the_same_run(sync):
    first, second = outcome(simulate, sync), simulate(config("asp") | {"sync": SYNCS[sync]})
    for digest in ("parameters_digest", "trace_digest"):
        assert first.summary[digest] == second.summary[digest]


def test_the_simulation_abandons_the_steps_that_a_real_run_abandons():
    """Worker 0 needs 1 s, the others 0.1 s; then they wait for worker 0.

    0.5 s after worker 0 has begun, both have pushed, and one is enough.
    """
    slow = {"workers": [0], "factor": 10.0}
    data = config(
        "asp",
        workers=3,
        servers=2,
        network=None,
        evaluate={},
        compute={"kind": "constant", "mean_s": 0.1, "slow": [slow]},
        stop={"iterations": 3},
    )
    data["sync"] = {"kind": "specsync", "base": "ssp", "staleness": 0}
    data["sync"] |= {"abort_time_s": 0.5, "abort_rate": 0.3}
    virtual, real = simulate(data), run(data)
    steps = [(0, 1), (0, 2)]
    assert again(virtual) == steps
    assert [step for step in again(real) if step[0] == 0] == steps
    assert virtual.summary["resyncs"]["abandoned_s"] == pytest.approx(2 * 0.5 / 3)
    for row in rows(real, "resync"):
        if row["worker"] == 0:
            assert row["computed_ns"] - row["start_ns"] >= 0.49e9
    for result in (virtual, real):
        assert result.summary["gradients_applied"] == 9


def test_the_steps_of_a_worker_that_is_alone_are_never_begun_again():
    result = simulate(config("asp", workers=1) | {"sync": SYNCS["fixed"]})
    assert again(result) == []


BASE = SYNCS["fixed"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sync": {"kind": "specsync", "abort_time_s": 0.1}}, "give both, or neither"),
        ({"sync": {"kind": "specsync", "abort_rate": 0.1}}, "give both, or neither"),
        ({"sync": {**BASE, "abort_time_s": 0}}, "abort_time_s must be above 0"),
        ({"sync": {**BASE, "abort_rate": -1}}, "abort_rate must be above 0"),
        ({"sync": {**BASE, "epoch_pushes": 5}}, "epoch_pushes: abort_time_s and abort_rate"),
        ({"sync": {"kind": "specsync", "epoch_pushes": 0}}, "epoch_pushes must be from 1"),
        ({"sync": {**BASE, "base": "ssp"}}, "staleness: base: ssp needs"),
        ({"sync": {**BASE, "staleness": 2}}, "set base: ssp"),
        ({"sync": {**BASE, "buffer": "soft"}}, "set base: ssp"),
        ({"sync": {**BASE, "base": "bsp"}}, "base"),
        ({"sync": {**BASE, "base": "ssp", "staleness": -1}}, "staleness must be"),
        ({"sync": BASE, "pull": {"quorum_percent": 50}}, "pull: specsync has workers of its own"),
        ({"sync": BASE, "skip": {"push": {"every": 2}}}, "skip: specsync has workers of its own"),
        ({"sync": BASE, "overlap": "backward"}, "overlap: with specsync"),
        ({"sync": BASE, "barrier": "global"}, "barrier: with specsync"),
        ({"sync": BASE, "conditions": [{"pull": "mine.py:f"}]}, "conditions: with specsync"),
        ({"sync": [BASE] * 2 + [{"kind": "asp"}]}, "sync: with specsync one scheduler decides"),
        ({"sync": [BASE] * 3}, "sync: with specsync one scheduler decides"),
        (
            {"sync": BASE, "sync_changes": [{"at_s": 1.0, "sync": {**BASE, "abort_rate": 1.0}}]},
            "sync_changes: with specsync one scheduler decides",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_key_and_the_reason(changes, words):
    with pytest.raises(ConfigError) as error:
        experiment_from(config("asp") | changes, "test")
    assert words in str(error.value)


def test_a_script_is_refused_with_the_reason():
    data = {
        "task": {"kind": "script", "path": "train.py"},
        "workers": 2,
        "compute": {"kind": "constant", "mean_s": 0.1},
        "sync": {"kind": "specsync"},
    }
    with pytest.raises(ConfigError, match="sync: specsync computes a step again on the same batch"):
        experiment_from(data, "test")
