"""Promises of every runtime, checked on traces. A new runtime joins by one line in RUNTIMES."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import pytest
import torch
from tests.support.runtimes import (
    BOUNDS,
    ITERATIONS,
    SERVERS,
    SYNCS,
    WORKERS,
    config,
    every_runtime,
    rows,
    runs,
)

from outpace.experiment.running import simulate

QUORUMS = {name: sync["quorum"] for name, sync in SYNCS.items() if "quorum" in sync}  # they drop

# SSP whose workers continue when two of three servers have answered; some answers are late.
PARTIAL = "ssp, partial pull"
LATE = [{"message": "reply", "probability": 0.1, "seconds": 0.3}]
PULL = {
    "pull": {"quorum_percent": 34, "ahead": 4},
    "network": {"latency_s": 0.002, "bandwidth_bytes_per_s": 1e6, "delays": LATE},
}

# A real BSP ends with the parameters of virtual time (below); test_partial_pull.py has real runs.
FOR_REAL = ("pssp", "partial-push")


every_sync = runs(SYNCS, FOR_REAL)
also_partial_pull = runs([*SYNCS, PARTIAL], FOR_REAL)
waits_for_all = runs([sync for sync in SYNCS if sync not in QUORUMS], FOR_REAL)
drops = runs(QUORUMS, FOR_REAL)


@cache
def outcome(run, sync):
    """Return the run that most tests use; it is made once."""
    return run(config("ssp", **PULL) if sync == PARTIAL else config(sync))


@waits_for_all
def test_every_iteration_pushes_to_and_pulls_from_every_shard_once(run, sync):
    result = outcome(run, sync)
    expected = {
        (worker, shard, iteration)
        for worker in range(WORKERS)
        for shard in range(SERVERS)
        for iteration in range(ITERATIONS)
    }
    for event in ("push", "pull"):
        seen = [(row["worker"], row["shard"], row["iteration"]) for row in rows(result, event)]
        assert len(seen) == len(expected)
        assert set(seen) == expected
    iterations = Counter(row["worker"] for row in rows(result, "iteration"))
    assert iterations == dict.fromkeys(range(WORKERS), ITERATIONS)
    assert result.summary["iterations"] == [ITERATIONS] * WORKERS
    assert result.summary["gradients_applied"] == WORKERS * ITERATIONS
    assert result.summary["gradients_dropped"] == 0
    assert result.summary["messages"] == 3 * len(expected)


@drops
def test_what_is_dropped_is_counted_and_every_iteration_has_its_quorum(run, sync):
    result = outcome(run, sync)
    computed = {(row["worker"], row["iteration"]) for row in rows(result, "iteration")}
    expected = {(*key, shard) for key in computed for shard in range(SERVERS)}
    for event in ("push", "pull"):
        seen = [(row["worker"], row["iteration"], row["shard"]) for row in rows(result, event)]
        assert len(seen) == len(expected)
        assert set(seen) == expected
    applied, dropped = Counter(), Counter()
    for row in rows(result, "push"):
        assert row["outcome"] in ("applied", "dropped")
        counter = applied if row["outcome"] == "applied" else dropped
        counter[row["shard"], row["iteration"]] += 1
    assert set(applied) == {(m, i) for m in range(SERVERS) for i in range(ITERATIONS)}
    assert dropped, "else this run shows nothing"
    for shard in range(SERVERS):  # of the last iterations who has left has no part
        assert all(applied[shard, i] >= QUORUMS[sync] for i in range(ITERATIONS - 1))
    summary = result.summary
    of_first = [sum(n for (m, _), n in each.items() if m == 0) for each in (applied, dropped)]
    assert [summary["gradients_applied"], summary["gradients_dropped"]] == of_first
    assert sum(summary["iterations"]) == len(computed) == sum(of_first)
    assert summary["messages"] == 3 * len(expected)


@also_partial_pull
def test_no_pull_was_answered_beyond_the_bound(run, sync):
    for row in rows(outcome(run, sync), "pull"):
        lead = row["iteration"] - row["clock"]
        if sync == "psp-sampling":  # its lead is measured over its sample
            assert row["lead"] <= lead or row["released_by"] is not None
            assert row["lead"] < row["bound"] or row["released_by"] is not None
        else:
            assert row["lead"] == lead or row["released_by"] is not None
        kind = "ssp" if sync == PARTIAL else sync
        if kind in BOUNDS:
            assert row["iteration"] < row["clock"] + BOUNDS[kind]


@every_runtime
def test_whom_a_probability_lets_pass_is_beyond_the_bound_and_others_are_not(run):
    reasons = Counter()
    for row in rows(outcome(run, "pssp"), "pull"):
        reasons[row["reason"]] += 1
        assert (row["reason"] == "within-bound") == (row["lead"] < row["bound"])
        assert (row["reason"] == "beyond-bound") == (row["released_by"] is not None)
        if row["reason"] == "beyond-bound":  # its buffer is lazy
            assert row["clock"] > row["iteration"]
    assert len(reasons) == 3, reasons


@also_partial_pull
def test_the_summary_is_what_the_trace_says(run, sync):
    result = outcome(run, sync)
    summary, pushes, pulls = result.summary, rows(result, "push"), rows(result, "pull")
    iterations = rows(result, "iteration")
    pushes = [row for row in pushes if row["outcome"] == "applied"]
    histogram = Counter(row["staleness"] for row in pushes)
    assert summary["staleness"]["histogram"] == {str(k): histogram[k] for k in sorted(histogram)}
    assert summary["staleness"]["max"] == max(histogram)
    assert summary["staleness"]["mean"] == pytest.approx(
        sum(k * n for k, n in histogram.items()) / len(pushes)
    )
    assert summary["delayed_pulls"] == sum(row["released_by"] is not None for row in pulls)
    compute = sum(row["computed_ns"] - row["start_ns"] for row in iterations)
    wait = sum(row["held_ns"] for row in iterations)
    total = sum(row["end_ns"] - row["start_ns"] for row in iterations)
    seconds = summary["seconds"]
    assert seconds["compute"] == pytest.approx(compute / WORKERS / 1e9)
    assert seconds["wait"] == pytest.approx(wait / WORKERS / 1e9)
    assert sum(seconds.values()) == pytest.approx(total / WORKERS / 1e9)


@also_partial_pull
def test_times_follow_each_other(run, sync):
    result = outcome(run, sync)
    held = {
        (row["worker"], row["shard"], row["iteration"]): row["end_ns"] - row["start_ns"]
        for row in rows(result, "pull")
    }
    ended = defaultdict(int)
    for row in sorted(rows(result, "iteration"), key=lambda row: row["start_ns"]):
        assert ended[row["worker"]] <= row["start_ns"] < row["computed_ns"] < row["end_ns"]
        assert row["held_ns"] == held[row["worker"], row["shard"], row["iteration"]]
        assert row["held_ns"] <= row["end_ns"] - row["computed_ns"]
        ended[row["worker"]] = row["end_ns"]


@every_sync
def test_a_read_version_is_one_that_was_handed_out_before(run, sync):
    result = outcome(run, sync)
    pulls = {
        (row["worker"], row["shard"], row["iteration"]): row["version"]
        for row in rows(result, "pull")
    }
    read = defaultdict(int)
    for row in sorted(rows(result, "push"), key=lambda row: row["iteration"]):
        assert row["version"] == read[row["worker"], row["shard"]]
        key = row["worker"], row["shard"]
        read[key] = pulls[*key, row["iteration"]]


@pytest.mark.parametrize("tie_seed", range(5))
def test_bsp_does_not_depend_on_the_order_of_simultaneous_events(tie_seed):
    same = {"compute": {"kind": "constant", "mean_s": 0.05}, "network": None}
    expected = simulate(config("bsp", **same))
    shuffled = simulate(config("bsp", **same), tie_seed=tie_seed)
    for name, value in expected.parameters.items():
        assert torch.equal(shuffled.parameters[name], value)


STEPS = {
    "adam": {
        "optimizer": {
            "kind": "adam",
            "reference_batch": 10,
            "schedule": {"kind": "cosine", "epochs": 0.2, "warmup_epochs": 0.1},
        },
    },
    "lars by layers": {
        "slicing": "layers",
        "optimizer": {
            "kind": "lars",
            "lr": 1.0,
            "weight_decay": 1e-4,
            "trust_coefficient": 0.02,
            "schedule": {"kind": "step", "at_epochs": [0.1], "factor": 0.5},
        },
    },
}


@every_runtime
@pytest.mark.parametrize("steps", STEPS)
def test_bsp_reaches_the_same_parameters_on_every_runtime(run, steps):
    same = config("bsp", deterministic=True, **STEPS[steps])
    result, expected = run(same), simulate(same)
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    for name, value in expected.parameters.items():
        assert torch.equal(result.parameters[name], value)
