"""The contract of strategies without servers, in virtual time and for real.

A new strategy has a line in STRATEGIES. It also has a line in CASES if its parameters do not depend
on timing, so that real processes must reach the parameters of virtual time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import pytest
import torch

from outpace.experiment.running import run, simulate
from outpace.optim import Sgd
from outpace.sync import (
    DiLoCo,
    Gossip,
    Hpsgd,
    LocalSgd,
    Peers,
    PeerStrategy,
    Psgd,
    Ssgd,
)
from outpace.sync.peers.iterations import iterations
from outpace.testing import check_strategy
from outpace.testing.peer_runs import PeerRun

ITERATIONS = 12
SGD = {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}
ADAM = {"kind": "adam", "lr": 0.01}
EVERY_3 = {"kind": "local-sgd", "every": 3}


@dataclass(frozen=True)
class EveryOther(PeerStrategy):
    """A user's strategy: averages the gradients of every second iteration and drops the others."""

    kind: str = "every-other"

    averages_gradients: ClassVar[bool] = True

    async def train(self, me):
        model = me.common()
        async for iteration in iterations(me, model):
            if iteration.number % 2 == 0:
                reduced = await me.begin_all_reduce(iteration.gradient).result()
                model.commit(reduced.mean, 1, reduced.weight)


STRATEGIES: list[PeerStrategy] = [
    Ssgd(),
    LocalSgd(every=5),
    Psgd(),
    Hpsgd(),
    Hpsgd(start_together=True),
    DiLoCo(every=5),
    Gossip(),
    EveryOther(),
]
CASES = {  # strategy, workers, optimizer
    "ssgd, bf16": ({"kind": "ssgd", "wire": "bf16"}, 2, SGD),
    "local-sgd, after": ({**EVERY_3, "every": 5, "after": 4}, 3, SGD),  # 12 is no multiple of 5
    # A decision after each average, so that times do not matter.
    "psgd": ({"kind": "psgd"}, 2, ADAM),
    "diloco, bf16": ({"kind": "diloco", "every": 5, "wire": "bf16"}, 2, ADAM),
    "hpsgd, one at a time": ({"kind": "hpsgd", "window": 1, "start_together": True}, 2, SGD),
}


def test_the_contract_covers_every_strategy():
    assert {type(strategy) for strategy in STRATEGIES} == {*get_args(Peers), EveryOther}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.kind)
def test_every_strategy_keeps_its_promises(strategy):
    check_strategy(strategy)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.kind)
def test_workers_that_compute_the_same_take_the_steps_of_one_worker(strategy):
    """The mean of equal gradients, or of equal models, equals each of them."""
    if isinstance(strategy, DiLoCo):  # the outer step of which is then the step to the mean
        strategy = replace(strategy, outer_lr=1.0, outer_momentum=0.0)
    steps_every = 2 if isinstance(strategy, EveryOther) else 1
    run = PeerRun(
        strategy,
        [[0.02] * ITERATIONS] * 3,
        gradient_of=lambda worker, iteration: torch.full((3,), iteration + 1.0).double(),
        optimizer=Sgd(lr=0.5, momentum=0.5),
    )
    buffer, expected = 0.0, 0.0
    for iteration in range(0, ITERATIONS, steps_every):
        buffer = 0.5 * buffer + iteration + 1.0
        expected -= 0.5 * buffer
    assert run.parameters.tolist() == pytest.approx([expected] * 3, rel=1e-12)


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
    """Return the largest difference of two models."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "workers", "optimizer"), CASES.values(), ids=CASES)
def test_both_runtimes_reach_the_same_parameters(sync, workers, optimizer):
    same = config(sync, workers, optimizer)
    result, expected = run(same), simulate(same)
    assert farthest(result.parameters, expected.parameters) < 1e-6
    moved = simulate(config(sync, workers, optimizer, stop={"iterations": 1}))
    assert farthest(expected.parameters, moved.parameters) > 1e-2, "else this shows nothing"
    for name in ("iterations", "gradients_applied", "synchronizations", "mean_window", "staleness"):
        assert result.summary[name] == expected.summary[name], name


@pytest.mark.slow
def test_sums_in_the_order_of_the_workers_are_bitwise_those_of_virtual_time():
    same = config({"kind": "ssgd"}, 5, SGD, task={"kind": "digits-cnn"}, deterministic=True)
    assert farthest(run(same).parameters, simulate(same).parameters) == 0


@pytest.mark.slow
def test_all_reduces_take_at_least_what_the_network_they_are_stretched_to_would():
    latency_s = 0.03
    network = {"latency_s": latency_s, "stretch": True}
    result = run(config({"kind": "hpsgd"}, 3, SGD, network=network))
    rows = [row for row in result.trace.to_pylist() if row["event"] == "all-reduce"]
    # The workers in each average: a worker that is at its end leaves the others.
    members = {row["version"]: row["clock"] for row in rows}
    assert Counter(row["version"] for row in rows) == members
    assert len(members) == result.summary["synchronizations"]
    assert max(members.values()) == 3
    for row in rows:
        ring_ns = 2 * (row["clock"] - 1) * latency_s * 1e9
        assert row["end_ns"] - row["computed_ns"] >= ring_ns
    assert result.summary["synchronizations"] < ITERATIONS
