"""All-reduces against their formulas, and the cost model of HPSGD (section 3.2): exact."""

from __future__ import annotations

import math

import pytest

from outpace.experiment.running import simulate
from outpace.support.units import nanoseconds

MS = 1_000_000  # ns
T = 0.06  # seconds of a step
PARAMETERS = 480_000  # of four bytes: the chunks of up to six workers are whole


def run_config(sync, *, workers=4, iterations=24, **more):
    return {
        "task": {"kind": "timing", "parameters": PARAMETERS},
        "workers": workers,
        "sync": sync,
        "compute": {"kind": "constant", "mean_s": T},
        "stop": {"iterations": iterations},
        **more,
    }


def run(sync, **more):
    return simulate(run_config(sync, **more))


def rows(result, event, **where):
    return [
        row
        for row in result.trace.to_pylist()
        if row["event"] == event and all(row[key] == value for key, value in where.items())
    ]


def network(latency_s, bandwidth, contention="serialised"):
    return {
        "latency_s": latency_s,
        "bandwidth_bytes_per_s": bandwidth,
        "contention": contention,
    }


LINKS = [(0.0, 1e9), (0.003, 1e7), (0.0005, 1.25e8), (0.02, 1e18)]


@pytest.mark.parametrize("contention", ["serialised", "fair"])
@pytest.mark.parametrize(("latency_s", "bandwidth"), LINKS)
@pytest.mark.parametrize("workers", [2, 3, 4, 5, 6])
def test_a_ring_takes_its_formula(workers, latency_s, bandwidth, contention):
    law = network(latency_s, bandwidth, contention)
    result = run({"kind": "ssgd"}, workers=workers, iterations=3, network=law)
    size, rounds = 4 * PARAMETERS, 2 * (workers - 1)
    takes = nanoseconds(rounds * (latency_s + size / (workers * bandwidth)))
    found = rows(result, "all-reduce")
    assert len(found) == 3 * workers
    apart = 0 if contention == "serialised" else rounds  # each message ends at a whole nanosecond
    assert all(abs(row["end_ns"] - row["computed_ns"] - takes) <= apart for row in found)
    assert abs(result.summary["virtual_time_s"] * 1e9 - 3 * (60 * MS + takes)) < 0.5 + 3 * apart
    assert result.summary["bytes_sent"] == 3 * rounds * size
    if contention == "serialised":
        assert result.summary["messages"] == 3 * rounds * workers


@pytest.mark.parametrize("contention", ["serialised", "fair"])
@pytest.mark.parametrize("workers", [2, 3, 4, 5, 6])
def test_a_tree_takes_two_messages_per_level(workers, contention):
    law = network(0.003, 1e7, contention)
    result = run({"kind": "ssgd", "all_reduce": "tree"}, workers=workers, iterations=2, network=law)
    levels = math.ceil(math.log2(workers))
    takes = nanoseconds(2 * levels * (0.003 + 4 * PARAMETERS / 1e7))
    for number in range(2):
        found = rows(result, "all-reduce", version=number)
        last = max(row["end_ns"] - row["computed_ns"] for row in found)
        if contention == "serialised":
            assert last == takes
        elif workers in (2, 4):  # whole nanoseconds for each message
            assert last == pytest.approx(takes, abs=2 * levels)
        else:  # a worker without children need not wait for a round
            assert takes - 2 * levels * 3 * MS <= last < takes
    assert result.summary["bytes_sent"] == 2 * 2 * (workers - 1) * 4 * PARAMETERS


def test_one_slow_connection_holds_up_every_round_of_a_ring():
    law = network(0.001, 1e8) | {"nodes": {"worker-2": {"bandwidth_bytes_per_s": 1e7}}}
    result = run({"kind": "ssgd"}, network=law)
    takes = nanoseconds(2 * 3 * (0.001 + PARAMETERS / 1e7))
    assert {row["end_ns"] - row["computed_ns"] for row in rows(result, "all-reduce")} == {takes}


@pytest.mark.parametrize("contention", ["serialised", "fair"])
@pytest.mark.parametrize(("route", "rounds", "chunks"), [("ring", 6, 4), ("tree", 4, 1)])
def test_an_all_reduce_may_have_a_cost_of_its_own_per_round(route, rounds, chunks, contention):
    law = network(0.001, 1e8, contention) | {
        "nodes": {"worker-2": {"latency_s": 1.0}},
        "all_reduce": {"latency_s": 0.004, "bandwidth_bytes_per_s": 2e7},
    }
    result = run({"kind": "ssgd", "all_reduce": route}, iterations=3, network=law)
    takes = nanoseconds(rounds * (0.004 + 4 * PARAMETERS / chunks / 2e7))
    assert {row["end_ns"] - row["computed_ns"] for row in rows(result, "all-reduce")} == {takes}


# -- the cost model: steps of t seconds, synchronizations of k·t, γ steps without one --------

GAMMA = 8


def costing(k):
    """Return a network in which a ring of four takes k·T."""
    return {"latency_s": k * T / 6}


@pytest.mark.parametrize("k", [0, 1, 3, 9])
@pytest.mark.parametrize("gamma", [0, 1, GAMMA])
def test_a_round_of_local_sgd_takes_its_steps_and_a_synchronization(gamma, k):
    rounds = 24 // (gamma + 1)
    result = run(
        {"kind": "local-sgd", "every": gamma + 1},
        iterations=rounds * (gamma + 1),
        network=costing(k),
    )
    expected = rounds * ((gamma + 1) * T + k * T)
    assert result.summary["virtual_time_s"] == pytest.approx(expected, abs=1e-9)
    assert result.summary["synchronizations"] == rounds
    assert result.summary["mean_window"] == gamma + 1


@pytest.mark.parametrize("commit", ["immediate", "delayed"])
@pytest.mark.parametrize("k", [1, 3, 9])
def test_hpsgd_in_the_time_of_a_round_of_local_sgd(k, commit):
    """γ + k + 1 steps, and (γ + 1)/k + 1 synchronizations; k divides γ + 1."""
    rounds = 4
    steps = GAMMA + k + 1
    time_ns = nanoseconds(rounds * ((GAMMA + 1) * T + k * T))
    sync = {"kind": "hpsgd", "commit": commit}
    result = run(sync, iterations=rounds * steps + 20, network=costing(k))
    done = [row for row in rows(result, "iteration", worker=0) if row["end_ns"] <= time_ns]
    assert len(done) == rounds * steps
    begun = [row for row in rows(result, "all-reduce", worker=0) if row["start_ns"] <= time_ns]
    assert len(begun) == rounds * ((GAMMA + 1) // k + 1)
    assert {row["end_ns"] - row["start_ns"] for row in begun} == {nanoseconds(k * T)}


@pytest.mark.parametrize("k", [0, 1, 3, 7, 8, 12])
def test_a_round_of_overlapped_diloco_takes_its_steps_or_its_synchronization(k):
    """The longer one counts; there are no steps during the last synchronization."""
    every, rounds = 8, 3
    result = run(
        {"kind": "diloco", "every": every, "overlap": True},
        iterations=every * rounds,
        network=costing(k),
    )
    expected = (every + (rounds - 1) * max(every, k) + k) * T
    assert result.summary["virtual_time_s"] == pytest.approx(expected, abs=1e-9)
    assert result.summary["synchronizations"] == rounds
    if k:
        overlapped = (rounds - 1) * min(k, every) / (rounds * k)
        assert result.summary["overlap_fraction"] == pytest.approx(overlapped)
