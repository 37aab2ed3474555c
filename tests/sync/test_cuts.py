"""Checkpoints of shards: when a state is taken, and new requests after a missed one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.support.fluentps import behind_barrier

from outpace.config.reading import experiment_from
from outpace.engine.servers import is_exact
from outpace.optim import Sgd
from outpace.sync import Bsp, Scale
from outpace.sync.checkpoint.cuts import Cuts, place_of
from outpace.sync.checkpoint.state import (
    PendingIteration,
    ShardState,
    aligned,
    gaps,
)
from outpace.sync.messages import Push
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard
from outpace.testing.shard_driver import Account


class Asked:
    """A shard of two workers, and the results of its requests."""

    def __init__(self, policy):
        block = parameter_block(torch.zeros(1, dtype=torch.float64), Sgd(lr=1.0))
        self.shard = Shard(0, block, 2, policy, Account())
        self.saved, self.missed = [], []
        self.cuts = Cuts(
            lambda: place_of(self.shard),
            self._save,
            lambda number, clock: self.missed.append((number, clock)),
        )

    def _save(self, number):
        state = self.shard.state()
        self.saved.append((number, state.clock, state.watermarks))

    def push(self, worker, iteration):
        gradient = torch.ones(1, dtype=torch.float64)
        self.shard.receive(Push(worker, iteration, 0, gradient), 0)
        self.cuts.look()


def test_a_state_is_taken_when_the_iteration_begins_and_not_in_the_middle_of_it():
    asked = Asked(Bsp(scale=Scale.SUM))
    asked.cuts.ask(7, 1)
    asked.push(0, 0)
    assert asked.saved == []
    asked.push(1, 0)
    assert asked.saved == [(7, 1, (0, 0))]
    asked.push(0, 1)
    asked.cuts.ask(8, 1)  # worker 0 has pushed iteration 1: too late
    assert asked.missed == [(8, 1)]
    asked.cuts.ask(9)
    assert asked.saved[1:] == [(9, 1, (1, 0))]
    asked.cuts.ask(10, 2)
    asked.cuts.give_up(10)
    asked.push(1, 1)
    assert len(asked.saved) == 2
    assert asked.missed == [(8, 1)]


def of(clock, *watermarks, pending=()):
    parameters = torch.zeros(1)
    return ShardState(
        shard=0,
        clock=clock,
        version=0,
        watermarks=watermarks,
        parameters=parameters,
        pending=pending,
    )


def test_gaps_are_what_some_shards_have_and_others_wait_for():
    assert gaps([of(3, 4, 2), of(3, 4, 2)]) == 0
    # Worker 0: iterations 3 and 4 are missing in the second shard. Worker 1: it has finished 2
    # without the worker, and lacks 3.
    assert gaps([of(2, 4, 3), of(3, 2, 1)]) == 3


def test_shards_of_a_cut_off_run_go_on_together_after_all_that_was_pushed():
    pending = PendingIteration(3, Scale.SUM, 2, 1, ((0, torch.zeros(1)),), ((0, 0),))
    found = aligned([of(3, 3, 2, pending=(pending,)), of(2, 1, 2)])
    assert [(state.clock, state.pending) for state in found] == [(4, ()), (4, ())]
    assert [state.watermarks for state in found] == [(3, 2), (1, 2)]


LOCKSTEP = [
    {"sync": {"kind": "bsp"}},
    {"sync": behind_barrier()},
    {"sync": [{"kind": "bsp"}, {"kind": "drop-stragglers", "quorum": 2}]},
    {"sync": {"kind": "cutoff", "model": "fixed"}},
    {"sync": {"kind": "bsp"}, "pull": {"quorum_percent": 60}},  # of two servers: both
    {"sync": {"kind": "bsp"}, "skip": {"push": {"every": 2}}},
]
RELAXED = [
    {"sync": {"kind": "ssp", "staleness": 1}},
    {"sync": behind_barrier("ssp", staleness=1)},
    {"sync": [{"kind": "bsp"}, {"kind": "asp"}]},
    {"sync": {"kind": "bsp"}, "pull": {"quorum_percent": 50}},
    {"sync": {"kind": "bsp"}, "skip": {"pull": {"every": 2}}},
    {"sync": {"kind": "bsp"}, "sync_changes": [{"at_s": 9.0, "sync": {"kind": "asp"}}]},
    {"sync": {"kind": "bsp"}, "conditions": [{"push": "math:isfinite"}]},
]


@pytest.mark.parametrize("config", LOCKSTEP + RELAXED)
def test_a_cut_is_exact_where_all_workers_wait_for_each_iteration_of_all_servers(config):
    task, stop = {"kind": "timing", "parameters": 8}, {"iterations": 9}
    data = {"task": task, "workers": 3, "servers": 2, "stop": stop}
    experiment = experiment_from({**data, **config}, "a test", Path())
    assert is_exact(experiment) == (config in LOCKSTEP)
