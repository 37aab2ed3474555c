"""Cut-offs in every runtime: decided once for all shards; late gradients never count."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from tests.support.runtimes import (
    ITERATIONS,
    RUNTIMES,
    SERVERS,
    WORKERS,
    config,
    every_runtime,
    rows,
)

from outpace.experiment.running import simulate

RULES = {
    "fixed": {"kind": "cutoff", "model": "fixed", "share": 0.6},
    "time-out": {"kind": "cutoff", "model": "fixed", "share": 0.4, "timeout_s": 0.02},
    "last-5": {"kind": "cutoff", "model": "last-5", "decision": "deadline", "warmup": 2},
}
# The rules and the scheduler are the same for real, so two of the cases are enough there.
FOR_REAL = (("time-out", None), ("last-5", 50))
every_case = pytest.mark.parametrize(
    ("run", "rule", "pull"),
    [
        pytest.param(run, rule, pull, id=f"{name}-{rule}-{pull or 100} %")
        for name, run in RUNTIMES.items()
        for rule in RULES
        for pull in (None, 50)
        if run is simulate or (rule, pull) in FOR_REAL
    ],
)


@cache
def outcome(run, rule, pull):
    partial = {} if pull is None else {"pull": {"quorum_percent": pull}}
    return run(config("bsp", **partial) | {"sync": RULES[rule]})


def counted(result):
    """(iteration, shard) -> workers whose gradients were applied."""
    found = defaultdict(set)
    for row in rows(result, "push"):
        if row["outcome"] == "applied":
            found[row["iteration"], row["shard"]].add(row["worker"])
    return found


@every_case
def test_all_shards_apply_the_gradients_of_the_same_workers(run, rule, pull):
    result = outcome(run, rule, pull)
    found = counted(result)
    closed = {row["iteration"]: row["clock"] for row in rows(result, "cut-off")}
    assert sorted(closed) == list(range(ITERATIONS))
    for iteration, count in closed.items():
        for shard in range(SERVERS):
            assert found[iteration, shard] == found[iteration, 0]
        assert len(found[iteration, 0]) == count >= 1
    assert result.summary["gradients_applied"] == sum(closed.values())
    assert result.summary["cut_offs"]["iterations"] == ITERATIONS
    assert result.summary["cut_offs"]["mean_count"] == sum(closed.values()) / ITERATIONS


@every_case
def test_what_was_cut_off_is_never_applied(run, rule, pull):
    result = outcome(run, rule, pull)
    found = counted(result)
    stopped = 0
    for row in rows(result, "push"):
        if row["worker"] not in found[row["iteration"], row["shard"]]:
            assert row["outcome"] in ("abstained", "dropped")
            assert row["staleness"] is None
            stopped += 1
    assert stopped > 0
    assert result.summary["staleness"]["max"] == 0 or pull is not None


@every_case
def test_nobody_goes_on_before_an_iteration_is_closed(run, rule, pull):
    result = outcome(run, rule, pull)
    for row in rows(result, "pull"):
        assert row["end_ns"] is not None
        assert row["iteration"] < row["clock"]
    opened = {row["iteration"]: row["start_ns"] for row in rows(result, "cut-off")}
    ended = {row["iteration"]: row["end_ns"] for row in rows(result, "cut-off")}
    for iteration in range(1, ITERATIONS):
        assert opened[iteration] == ended[iteration - 1]
    for row in rows(result, "iteration"):
        assert row["end_ns"] >= ended[row["iteration"]]


@every_runtime
def test_whoever_is_cut_off_stops_computing_at_once(run):
    slow = {"workers": [1], "factor": 20.0}
    law = {"kind": "constant", "mean_s": 0.05, "slow": [slow]}
    result = run(config("bsp", compute=law) | {"sync": RULES["fixed"]})
    ended = {row["iteration"]: row["end_ns"] for row in rows(result, "cut-off")}
    late = [row for row in rows(result, "iteration") if row["worker"] == 1]
    assert late
    for row in late:  # it sleeps for a second otherwise
        assert row["computed_ns"] - ended[row["iteration"]] < 0.5e9
    assert result.summary["iterations"][1] == 0


def test_waiting_for_all_is_bsp_run_for_run():
    everybody = simulate(config("bsp") | {"sync": {"kind": "cutoff", "model": "all"}})
    assert (
        everybody.summary["parameters_digest"]
        == (simulate(config("bsp")).summary["parameters_digest"])
    )
    assert everybody.summary["gradients_applied"] == WORKERS * ITERATIONS


def test_an_iteration_lasts_as_long_as_its_slowest_that_counts():
    slow = [{"workers": [n], "factor": factor} for n, factor in enumerate((1.0, 2.0, 4.0))]
    data = config(
        "bsp", workers=3, network=None, compute={"kind": "constant", "mean_s": 1.0, "slow": slow}
    )
    result = simulate(data | {"sync": {"kind": "cutoff", "model": "fixed", "share": 2 / 3}})
    assert result.summary["virtual_time_s"] == 2.0 * ITERATIONS
    assert result.summary["iterations"] == [ITERATIONS, ITERATIONS, 0]
    assert result.summary["gradients_applied"] == 2 * ITERATIONS
    for row in rows(result, "iteration"):
        assert row["computed_ns"] - row["start_ns"] == (1 if row["worker"] == 0 else 2) * 10**9


def test_a_worker_that_is_late_for_a_while_stops_and_is_in_time_again_afterwards():
    """Iterations of worker 2 before 2.4 s take 3 s, and the others wait 0.25 s for it."""
    slow = [{"workers": [2], "factor": 3.0, "until_s": 2.4}]
    compute = {"kind": "constant", "mean_s": 1.0, "slow": slow}
    data = config("bsp", workers=3, servers=1, network=None, compute=compute)
    sync = {"kind": "cutoff", "model": "fixed", "share": 2 / 3, "timeout_s": 0.25}
    result = simulate(data | {"sync": sync})
    of_two = [row for row in rows(result, "iteration") if row["worker"] == 2]
    ends = [(row["iteration"], row["end_ns"] / 1e9) for row in of_two]
    assert ends[:4] == [(0, 1.25), (1, 2.5), (2, 3.5), (3, 4.5)]
    assert result.summary["iterations"] == [ITERATIONS, ITERATIONS, ITERATIONS - 2]
