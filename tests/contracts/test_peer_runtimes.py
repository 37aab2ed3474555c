"""Without servers real processes reach what virtual time does, however sums are rounded."""

from __future__ import annotations

import pytest

from outpace.experiment.running import run, simulate

pytestmark = pytest.mark.slow

ITERATIONS = 12
SGD = {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}
ADAM = {"kind": "adam", "lr": 0.01}
EVERY_3 = {"kind": "local-sgd", "every": 3}
CASES = {  # strategy, workers, optimizer
    "ssgd, momentum": ({"kind": "ssgd"}, 3, SGD),
    "ssgd, Adam": ({"kind": "ssgd"}, 2, ADAM),
    "ssgd, bf16": ({"kind": "ssgd", "wire": "bf16"}, 2, SGD),
    "local-sgd, after": ({**EVERY_3, "every": 5, "after": 4}, 3, SGD),  # 12 is no multiple of 5
    "diloco, bf16": ({"kind": "diloco", "every": 5, "wire": "bf16"}, 2, ADAM),
    "hpsgd, one at a time": ({"kind": "hpsgd", "window": 1}, 2, SGD),
    "hpsgd, in a process beside": (
        {"kind": "hpsgd", "window": 1, "synchronizer": "process"},
        2,
        SGD,
    ),
}


def config(sync, workers, optimizer, **changes):
    return {
        "seed": 7,
        "task": {"kind": "digits-mlp"},
        "workers": workers,
        "compute": {"kind": "constant", "mean_s": 0.005},
        "sync": sync,
        "optimizer": optimizer,
        "batch_size": 16,
        "stop": {"iterations": ITERATIONS},
        **changes,
    }


def farthest(one, other):
    """The largest difference of two models."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize(("sync", "workers", "optimizer"), CASES.values(), ids=CASES)
def test_both_runtimes_reach_the_same_parameters(sync, workers, optimizer):
    same = config(sync, workers, optimizer)
    result, expected = run(same), simulate(same)
    assert farthest(result.parameters, expected.parameters) < 1e-6
    moved = simulate(config(sync, workers, optimizer, stop={"iterations": 1}))
    assert farthest(expected.parameters, moved.parameters) > 1e-2, "else this shows nothing"
    for name in ("iterations", "gradients_applied", "synchronizations", "mean_window", "staleness"):
        assert result.summary[name] == expected.summary[name], name


@pytest.mark.parametrize("sync", [{"kind": "ssgd"}, {"kind": "local-sgd", "every": 5}])
def test_sums_in_the_order_of_the_workers_are_bitwise_those_of_virtual_time(sync):
    same = config(sync, 5, SGD, task={"kind": "digits-cnn"}, deterministic=True)
    assert farthest(run(same).parameters, simulate(same).parameters) == 0


def test_all_reduces_take_at_least_what_the_network_they_are_stretched_to_would():
    latency_s = 0.03
    network = {"latency_s": latency_s, "stretch": True}
    result = run(config({"kind": "hpsgd"}, 3, SGD, network=network))
    rows = [row for row in result.trace.to_pylist() if row["event"] == "all-reduce"]
    assert len(rows) == 3 * result.summary["synchronizations"]
    ring_ns = 2 * (3 - 1) * latency_s * 1e9
    assert all(row["end_ns"] - row["computed_ns"] >= ring_ns for row in rows)
    assert result.summary["synchronizations"] < ITERATIONS
