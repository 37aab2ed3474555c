"""Runs with failures in virtual time: their events, results and records."""

import pyarrow.compute as pc
import pytest
import torch
from tests.simulation.faults.ledger import (
    STRATEGIES,
    Ran,
    experiment,
)
from tests.simulation.faults.search import broken_promise

from outpace.errors import RunError

CRASH = {"at_s": 1.03, "worker": 1}
SERVER = {"at_s": 1.03, "server": 1}


def ran(strategy: str, *faults: dict, **changes) -> Ran:
    return Ran(experiment(strategy, {"schedule": list(faults)}, **changes))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("seed", "on_loss"), [(0, "restart"), (1, "restart"), (2, "continue")])
def test_no_gradient_counts_twice_and_the_run_goes_on_whatever_fails(strategy, seed, on_loss):
    assert broken_promise(strategy, seed, on_loss) == ""


@pytest.mark.parametrize("strategy", ["bsp", "asp", "ssptable"])
@pytest.mark.parametrize(
    "changes",
    [
        {"network": {"bandwidth_bytes_per_s": 2e3, "contention": "fair"}},
        {"push_time": {"kind": "constant", "mean_s": 0.02}, "pull_time": None},
        {"colocate": True},
    ],
)
def test_nothing_of_a_dead_process_arrives_whatever_carries_it(strategy, changes):
    faults = [{"at_s": 0.35 + 0.31 * n, "worker": n % 3} for n in range(6)]
    found = ran(strategy, *faults, {**SERVER, "at_s": 2.6}, seed=2, **changes)
    assert set(found.counts.flatten().tolist()) <= {0.0, 1.0}
    assert found.recovery.restarts >= 6
    pushes = 3 if strategy == "ssptable" else 1
    assert found.missing <= found.recovery.updates_lost + pushes * found.costs["worker_losses"]


def test_bsp_ends_with_the_parameters_of_the_undisturbed_run_bit_by_bit():
    plain = Ran(experiment("bsp", None, optimizer={"kind": "sgd", "lr": 0.3, "momentum": 0.9}))
    later = {**CRASH, "at_s": 2.03}
    found = ran("bsp", SERVER, later, optimizer={"kind": "sgd", "lr": 0.3, "momentum": 0.9})
    assert found.recovery.restarts == 2
    assert torch.equal(found.counts, plain.counts)


def test_a_workers_death_costs_at_most_its_push_and_the_others_go_on():
    found = ran("asp", CRASH)
    assert found.recovery.restarts == 1
    assert found.missing <= 1
    (row,) = rows(found, "restart")
    assert row["worker"] == 1
    assert row["start_ns"] == 1_030_000_000
    assert row["end_ns"] == 1_030_000_000 + 10_000_000 + 100_000_000  # detected, started


def test_without_a_worker_that_is_not_replaced_the_others_go_on():
    found = ran("bsp", CRASH, on_worker_loss="continue")
    assert found.recovery.restarts == 0
    assert found.counts[0].eq(1).all()
    assert found.counts[2].eq(1).all()
    assert 0 < found.counts[1].sum() < 20
    (row,) = rows(found, "loss")
    assert (row["worker"], row["start_ns"]) == (1, 1_030_000_000)


@pytest.mark.parametrize("strategy", ["bsp", "cutoff", "global barrier"])
@pytest.mark.parametrize("every_s", [0.3, 100.0])  # saved after the worker has left, or before
def test_a_worker_that_has_left_stays_away_when_all_begin_again(strategy, every_s):
    later = {**SERVER, "at_s": 2.03}
    changes = {"on_worker_loss": "continue", "checkpoint": {"every_s": every_s}}
    found = ran(strategy, CRASH, later, **changes)
    assert found.recovery.restarts == 1
    ended = [row["end_ns"] for row in rows(found, "iteration") if row["worker"] == 1]
    assert max(ended, default=0) < 1_030_000_000
    assert min(found.totals.iterations[worker] for worker in (0, 2)) >= 19  # perhaps cut off once
    assert found.counts[1].sum() < 20


@pytest.mark.parametrize(
    ("fault", "changes", "message"),
    [
        (CRASH, {"on_worker_loss": "stop"}, "worker-1 was killed by SIGKILL .after 1.04"),
        (SERVER, {"on_server_loss": "stop"}, "server-1 was killed by SIGKILL .after 1.04"),
        (SERVER, {"checkpoint": None}, "server-1 was killed by SIGKILL; set checkpoint"),
    ],
)
def test_a_run_that_shall_stop_ends_with_the_loss(fault, changes, message):
    with pytest.raises(RunError, match=message):
        ran("bsp", fault, **changes)


def test_the_records_go_back_with_the_run():
    found = ran("bsp", SERVER, evaluate={"every_updates": 1})
    pushes = [(row["worker"], row["shard"], row["iteration"]) for row in rows(found, "push")]
    assert len(pushes) == len(set(pushes)) == 3 * 2 * 20
    plain = Ran(experiment("bsp", None, evaluate={"every_updates": 1}))
    assert found.metrics["updates"].equals(plain.metrics["updates"])
    times = found.metrics["time_s"].to_pylist()
    assert times == sorted(times)
    assert found.totals.applied == 60
    assert list(found.totals.iterations.values()) == [20, 20, 20]


def test_random_failures_are_those_of_the_seed_and_the_same_for_every_strategy():
    law = {"workers": {"mtbf_s": 1.0}}
    first, again = (Ran(experiment("asp", law)) for _ in range(2))
    other = Ran(experiment("asp", law, seed=1))
    assert first.trace.equals(again.trace)
    assert first.costs == again.costs
    starts = [row["start_ns"] for row in rows(first, "restart")]
    assert starts
    assert starts != [row["start_ns"] for row in rows(other, "restart")]
    bsp = Ran(experiment("bsp", law))
    assert starts[0] == rows(bsp, "restart")[0]["start_ns"]


def rows(found: Ran, event: str) -> list[dict]:
    return found.trace.filter(pc.equal(found.trace["event"], event)).to_pylist()


def test_a_policy_that_changes_while_all_processes_are_away_counts_when_they_are_back():
    changes = [{"at_s": 1.1, "sync": {"kind": "asp", "scale": "sum"}}]  # they are back at 1.24 s
    found = ran("bsp", SERVER, sync_changes=changes, on_server_loss="restart")
    assert found.recovery.restarts == 1
    late = [row for row in rows(found, "pull") if row["start_ns"] > 1_300_000_000]
    assert len(late) > 20
    assert not any(row["released_by"] is not None for row in late)
