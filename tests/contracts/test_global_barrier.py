"""A global barrier: the same results as with a barrier per server, and what it costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import pytest
import torch
from test_runtimes import BOUNDS, ITERATIONS, SERVERS, WORKERS, config, every_runtime, rows

from outpace.experiment import simulate

every_sync = pytest.mark.parametrize("sync", ["bsp", "ssp"])
GLOBAL = {"barrier": "global"}


@cache
def outcome(run, sync):
    return run(config(sync, deterministic=True, **GLOBAL))


@every_runtime
@every_sync
def test_the_scheduler_judges_every_iteration_once_and_servers_answer_at_once(run, sync):
    result = outcome(run, sync)
    iterations = {(w, i) for w in range(WORKERS) for i in range(ITERATIONS)}
    pulls = defaultdict(list)
    for row in rows(result, "pull"):
        pulls[row["shard"]].append((row["worker"], row["iteration"]))
        if row["shard"] < SERVERS:
            assert row["released_by"] is None
            assert row["start_ns"] == row["end_ns"]
    assert pulls.keys() == set(range(SERVERS + 1))
    assert all(sorted(seen) == sorted(iterations) for seen in pulls.values())
    pushes = Counter(row["shard"] for row in rows(result, "push"))
    assert pushes == dict.fromkeys(range(SERVERS), len(iterations))
    assert result.summary["gradients_applied"] == len(iterations)
    # Per iteration: push, acknowledgement, pull, reply with each server; a report, a pull
    # and the answer with the scheduler.
    assert result.summary["messages"] == (4 * SERVERS + 3) * len(iterations)


@every_runtime
@every_sync
def test_nobody_is_let_through_beyond_the_bound_nor_by_a_server_that_lags(run, sync):
    for row in rows(outcome(run, sync), "pull"):  # the servers' too: they have all it waits for
        assert row["iteration"] < row["clock"] + BOUNDS[sync]


@every_runtime
@every_sync
def test_an_iteration_shows_its_wait_at_the_scheduler(run, sync):
    result = outcome(run, sync)
    held = {
        (row["worker"], row["iteration"]): row["end_ns"] - row["start_ns"]
        for row in rows(result, "pull")
        if row["shard"] == SERVERS
    }
    for row in rows(result, "iteration"):
        assert row["shard"] == SERVERS
        assert row["held_ns"] == held[row["worker"], row["iteration"]]
        assert row["held_ns"] <= row["end_ns"] - row["computed_ns"]
    summary = result.summary
    assert summary["delayed_pulls"] == sum(
        row["released_by"] is not None for row in rows(result, "pull")
    )
    assert summary["seconds"]["wait"] == pytest.approx(sum(held.values()) / WORKERS / 1e9)


@every_runtime
def test_bsp_reaches_bitwise_the_parameters_of_a_barrier_per_server(run):
    result, expected = outcome(run, "bsp"), simulate(config("bsp"))
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    for name, value in expected.parameters.items():
        assert torch.equal(result.parameters[name], value)


def test_the_messages_of_the_barrier_take_their_time():
    # Compute 1 s; push, acknowledgement, report, answer, pull and reply 10 ms each.
    timing = {
        "task": {"kind": "timing", "parameters": 100},
        "workers": 3,
        "servers": 2,
        "compute": {"kind": "constant", "mean_s": 1.0},
        "network": {"latency_s": 0.01},
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 10},
    }
    assert simulate({**timing, **GLOBAL}).summary["virtual_time_s"] == pytest.approx(10 * 1.06)
    assert simulate(timing).summary["virtual_time_s"] == pytest.approx(10 * 1.02)


@pytest.mark.parametrize("sync", ["bsp", "asp", "ssp", "ssp-soft", "ssp-on-advance"])
@pytest.mark.parametrize("tie_seed", [None, 1])
def test_every_strategy_ends_behind_a_global_barrier(sync, tie_seed):
    law = {"kind": "exponential", "mean_s": 0.001}
    costs = {"push_time": law, "pull_time": law}
    result = simulate(config(sync, **GLOBAL, **costs), tie_seed=tie_seed)
    assert result.summary["gradients_applied"] == WORKERS * ITERATIONS


def test_a_run_that_is_stopped_reports_who_still_waits_at_the_scheduler():
    slow = {"kind": "constant", "mean_s": 1.0, "slow": [{"workers": [0], "factor": 100}]}
    result = simulate(config("bsp", compute=slow, stop={"virtual_time_s": 10.0}, **GLOBAL))
    waiting = [(r["worker"], r["shard"]) for r in rows(result, "pull") if r["end_ns"] is None]
    assert sorted(waiting) == [(worker, SERVERS) for worker in range(1, WORKERS)]


def test_the_scheduler_has_a_machine_of_its_own(tmp_path):
    rtt = tmp_path / "rtt.csv"
    size = WORKERS + SERVERS + 1
    far = size - 1  # the scheduler: 1 s away from everybody
    rtt.write_text(
        "\n".join(
            ",".join("0" if a == b else "2" if far in (a, b) else "0.02" for b in range(size))
            for a in range(size)
        )
    )
    network = {"matrix": {"path": str(rtt), "unit": "s"}}
    constant = {"kind": "constant", "mean_s": 1.0}
    same = {"network": network, "compute": constant, "stop": {"iterations": 2}}
    result = simulate(config("bsp", **same, **GLOBAL))
    assert result.summary["virtual_time_s"] == pytest.approx(2 * (1 + 4 * 0.01 + 2 * 1.0))
    named = {"latency_s": 0.01, "nodes": {"scheduler": {"latency_s": 1.0}}}
    again = simulate(config("bsp", **{**same, "network": named}, **GLOBAL))
    assert again.summary["virtual_time_s"] == result.summary["virtual_time_s"]


def test_a_folder_and_its_report_can_be_made(tmp_path):
    simulate(config("ssp", **GLOBAL), tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()
