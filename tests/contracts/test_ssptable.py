"""SSPtable: the parameters that its workers read, and the updates that reach the servers."""

from __future__ import annotations

from functools import cache

import pytest
from tests.support.fluentps import ssptable
from tests.support.runtimes import ITERATIONS, SERVERS, WORKERS, config, every_runtime, rows

from outpace.experiment.running import simulate
from outpace.real.net.inbox import Turns
from outpace.sync.messages import Pull, Push

STALENESS = 2
TABLE = ssptable(STALENESS)


def table_config(sync=TABLE, **changes):
    return {**config("ssp", **changes), "sync": sync}


@cache
def outcome(run):
    return run(table_config())


@every_runtime
def test_every_gradient_is_applied_and_few_pulls_are_needed(run):
    result = outcome(run)
    expected = {
        (worker, shard, iteration)
        for worker in range(WORKERS)
        for shard in range(SERVERS)
        for iteration in range(ITERATIONS)
    }
    pushed = [(row["worker"], row["shard"], row["iteration"]) for row in rows(result, "push")]
    assert len(pushed) == len(expected)
    assert set(pushed) == expected
    assert all(row["outcome"] == "applied" for row in rows(result, "push"))
    pulled = [(row["worker"], row["shard"], row["iteration"]) for row in rows(result, "pull")]
    assert len(set(pulled)) == len(pulled) < len(expected)
    assert {key for key in pulled if key[2] == ITERATIONS - 1} == {
        (worker, shard, ITERATIONS - 1) for worker in range(WORKERS) for shard in range(SERVERS)
    }
    assert result.summary["messages"] == len(pushed) + 2 * len(pulled)


@every_runtime
def test_no_read_is_older_than_the_bound_and_nobody_pulls_before(run):
    result = outcome(run)
    pulls = {(row["worker"], row["shard"], row["iteration"]): row for row in rows(result, "pull")}
    for worker in range(WORKERS):
        for shard in range(SERVERS):
            cached = 0
            for iteration in range(ITERATIONS):
                assert cached >= iteration - STALENESS
                due = cached < iteration + 1 - STALENESS or iteration == ITERATIONS - 1
                assert ((worker, shard, iteration) in pulls) == due
                if due:
                    cached = pulls[worker, shard, iteration]["clock"]
                    assert iteration < cached + STALENESS


def test_without_staleness_it_is_ssp_without_staleness_bit_for_bit():
    table = simulate(table_config(sync=ssptable(0)))
    plain = simulate(table_config(sync={"kind": "ssp", "staleness": 0, "buffer": "soft"}))
    for digest in ("parameters_digest", "trace_digest"):
        assert table.summary[digest] == plain.summary[digest]


@pytest.mark.parametrize("scale", ["mean", "sum"])
@pytest.mark.parametrize("staleness", [1, 5, 1000])
def test_a_worker_alone_sees_its_own_updates_as_if_it_pulled_them(scale, staleness):
    alone = {"workers": 1, "optimizer": {"lr": 0.05}, "stop": {"iterations": 20}}
    sync = ssptable(staleness, scale=scale)
    table = simulate(table_config(sync=sync, **alone))
    plain = simulate(config("bsp", **alone))
    assert table.summary["parameters_digest"] == plain.summary["parameters_digest"]
    assert table.summary["messages"] < plain.summary["messages"]


def test_a_server_hears_so_many_pushes_in_a_row_and_no_more():
    turns = Turns(most=1, pushes=3)
    assert all(turns.take(Push(0, iteration, 0)) for iteration in range(3))
    assert not turns.take(Push(0, 3, 0))
    assert turns.take(Pull(0, 3))
    assert not turns.take(Push(0, 4, 0)), "the pull is not answered"
    turns.answered(0, 3)
    assert turns.take(Push(0, 4, 0))
