"""Partial pull: when a worker continues, which parameters it uses, and that nothing is lost."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from tests.support.runtimes import ITERATIONS, SERVERS, WORKERS, config, rows, runs

from outpace.experiment.running import simulate
from outpace.real.net.inbox import Turns
from outpace.sync.messages import Leave, Pull, Push, Rejoin

every_run = runs(["bsp", "ssp"], for_real=["ssp"])
PULL = {"quorum_percent": 34, "ahead": 4}


@cache
def outcome(run, sync):
    late = [{"message": "reply", "probability": 0.1, "seconds": 0.3}]
    network = {"latency_s": 0.002, "bandwidth_bytes_per_s": 1e6, "delays": late}
    return run(config(sync, pull=PULL, network=network))


@every_run
def test_every_gradient_reaches_every_server_and_is_applied(run, sync):
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
    assert all(row["outcome"] == "applied" for row in rows(result, "push"))
    assert all(row["end_ns"] is not None for row in rows(result, "pull"))
    assert result.summary["gradients_applied"] == WORKERS * ITERATIONS
    # Several pulls of one worker may be answered by one reply.
    assert 2 * len(expected) < result.summary["messages"] <= 3 * len(expected)


@every_run
def test_the_version_a_gradient_names_was_handed_out_before_and_never_goes_back(run, sync):
    result = outcome(run, sync)
    handed_out = defaultdict(lambda: {0})
    for row in rows(result, "pull"):
        handed_out[row["worker"], row["shard"]].add(row["version"])
    read = defaultdict(list)
    for row in sorted(rows(result, "push"), key=lambda row: row["iteration"]):
        assert row["version"] in handed_out[row["worker"], row["shard"]]
        read[row["worker"], row["shard"]].append(row["version"])
    assert all(versions == sorted(versions) for versions in read.values())


@pytest.mark.parametrize("sync", ["bsp", "asp", "ssp", "ssp-soft", "ssp-on-advance"])
def test_waiting_for_all_servers_is_the_ordinary_program_bit_for_bit(sync):
    ordinary, partial = simulate(config(sync)), simulate(config(sync, pull={"quorum_percent": 100}))
    for digest in ("parameters_digest", "trace_digest"):
        assert partial.summary[digest] == ordinary.summary[digest]


def late(pull, iterations=10, **changes):
    """Run one worker that computes 1 s; the last of three servers always answers 4 s late."""
    delays = [{"message": "reply", "probability": 1.0, "seconds": 4.0, "nodes": ["server-2"]}]
    return simulate(
        {
            "task": {"kind": "timing", "parameters": 99},
            "workers": 1,
            "servers": 3,
            "compute": {"kind": "constant", "mean_s": 1.0},
            "network": {"delays": delays},
            "sync": {"kind": "bsp"},
            "stop": {"iterations": iterations},
            "pull": pull,
            **changes,
        }
    )


def ends(result):
    return [row["end_ns"] / 1e9 for row in rows(result, "iteration")]


def test_a_worker_does_not_wait_for_who_is_late_until_its_work_is_done():
    result = late({"quorum_percent": 66})
    assert ends(result) == list(range(1, 11))
    assert result.summary["virtual_time_s"] == 14  # all of its work has arrived


def test_it_waits_the_time_given_and_no_longer():
    assert ends(late({"quorum_percent": 66, "timeout_s": 0.5}, 3)) == [1.5, 3.0, 4.5]
    assert ends(late({"quorum_percent": 66, "timeout_s": 4.0}, 3)) == [5, 10, 15]  # all answered
    assert ends(late({"quorum_percent": 66, "timeout_s": 100.0}, 3)) == [5, 10, 15]


def test_what_comes_late_is_dropped_if_the_configuration_says_so():
    result = late({"quorum_percent": 66, "late": "drop"}, 8)
    read = [row["version"] for row in rows(result, "push") if row["shard"] == 2]
    assert read == [0] * 8
    assert ends(result) == list(range(1, 9))


def test_a_worker_gets_no_further_ahead_of_a_server_than_it_may():
    # With two pulls unanswered it waits: for the first until 5 s, for the second until 6 s.
    assert ends(late({"quorum_percent": 66, "ahead": 2}, 4)) == [1, 5, 6, 10]
    assert ends(late({"quorum_percent": 66, "ahead": 1}, 3)) == [5, 10, 15]


def test_a_server_hears_no_more_of_a_worker_than_may_be_unanswered():
    turns = Turns(most=2)
    for iteration in range(2):
        assert turns.take(Push(0, iteration, 0))
        assert turns.take(Pull(0, iteration))
    assert not turns.take(Push(0, 2, 0))
    assert not turns.take(Pull(0, 2))
    assert turns.take(Push(1, 0, 0)), "others are heard"
    assert turns.take(Leave(0))
    turns.answered(0, 0)
    assert turns.take(Push(0, 2, 0))
    assert not turns.take(Push(0, 3, 0)), "a push without its pull"
    turns.answered(0, 2)
    assert turns.take(Pull(0, 3))


def test_a_worker_rejoins_before_it_sends_anything_else():
    turns = Turns(most=1)
    assert turns.take(Rejoin(0, 5))
    assert turns.take(Pull(0, 4))
    assert not turns.take(Rejoin(0, 6)), "or it could push again without an answer"
    assert not turns.take(Push(0, 6, 0))
    turns.forget(0)  # another process replaces it
    assert turns.take(Rejoin(0, 6))
    assert turns.take(Push(0, 6, 0))
