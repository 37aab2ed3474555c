"""Runs without servers whose workers fail in virtual time."""

import pyarrow.compute as pc
import pytest
import torch
from tests.simulation.faults.ledger import PEERS, Ran, experiment, random_faults

CRASH = {"at_s": 1.03, "worker": 1}
MOMENTUM = {"optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}}


def ran(strategy: str, *faults: dict, **changes) -> Ran:
    return Ran(experiment(strategy, {"schedule": list(faults)}, **changes))


@pytest.mark.parametrize("strategy", PEERS)
@pytest.mark.parametrize("seed", range(3))
def test_every_gradient_counts_once_whatever_fails(strategy, seed):
    faults = random_faults(1000 * seed, workers=3, servers=2, until_s=2.5)
    faults = [fault for fault in faults if "worker" in fault]
    faults.append({**CRASH, "at_s": 0.7})
    found = Ran(experiment(strategy, {"schedule": faults}, seed=seed), tie_seed=seed)
    assert found.recovery.restarts > 0
    assert found.counts.eq(1).all()


@pytest.mark.parametrize("strategy", ["ssgd", "local-sgd", "psgd"])
def test_after_the_death_of_a_worker_all_begin_again_and_end_with_the_same_bits(strategy):
    plain = Ran(experiment(strategy, None, **MOMENTUM))
    found = ran(strategy, CRASH, {**CRASH, "at_s": 2.4, "worker": 0}, **MOMENTUM)
    assert found.recovery.restarts == 2
    assert found.costs["worker_losses"] == 2
    assert torch.equal(found.counts, plain.counts)
    rows = found.trace.filter(pc.equal(found.trace["event"], "restart")).to_pylist()
    assert [row["worker"] for row in rows] == [1, 0]
    assert rows[0]["end_ns"] == pytest.approx((1.03 + 0.01 + 0.2) * 1e9)  # detected, started
    updates = found.metrics["updates"].to_pylist()
    assert updates == sorted(updates)
    ended = found.trace.filter(pc.equal(found.trace["event"], "iteration")).to_pylist()
    once = sorted((row["worker"], row["iteration"]) for row in ended)
    assert once == [(worker, iteration) for worker in range(3) for iteration in range(20)]


@pytest.mark.parametrize("strategy", PEERS)
@pytest.mark.parametrize("latency_s", [0.0, 0.04])  # the loss is within an average
def test_with_continue_those_that_are_left_begin_again_from_the_checkpoint(strategy, latency_s):
    network = {"latency_s": latency_s, "bandwidth_bytes_per_s": 1e5, "contention": "fair"}
    found = ran(strategy, CRASH, network=network, on_worker_loss="continue")
    assert found.recovery.restarts == 1
    assert found.totals.iterations[0] == found.totals.iterations[2] == 20
    assert 0 < found.totals.iterations[1] < 20
    rows = found.trace.filter(pc.equal(found.trace["event"], "restart")).to_pylist()
    assert [(row["worker"], row["start_ns"]) for row in rows] == [(1, 1_030_000_000)]


def test_the_model_of_a_lost_worker_is_not_in_the_mean():
    found = ran("psgd", CRASH, on_worker_loss="continue")
    assert found.counts[0].eq(1.5).all()  # the mean of two models, times three
    assert found.counts[1].eq(0).all()


@pytest.mark.parametrize("contention", ["serialised", "fair"])
def test_messages_of_before_do_not_reach_workers_that_begin_again(contention):
    network = {"latency_s": 0.02, "bandwidth_bytes_per_s": 1e3, "contention": contention}
    faults = [{**CRASH, "at_s": at_s} for at_s in (0.9, 2.5, 4.1)]
    found = ran("ssgd", *faults, network=network, checkpoint={"every_updates": 3})
    assert found.recovery.restarts == 3
    assert found.counts.eq(1).all()
