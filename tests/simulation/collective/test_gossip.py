"""Pairwise averages: the mean does not change, no worker is in two at a time or waits for all."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.strategies import networks, timings

from outpace.cluster.network import NetworkLaw
from outpace.sync import Gossip
from outpace.testing.peer_runs import BASE, PeerRun


@settings(max_examples=100)
@given(table=timings(), network=networks(), tie_seed=st.none() | st.integers(0, 99))
def test_the_mean_of_the_parameters_is_changed_by_gradients_alone(table, network, tie_seed):
    run = PeerRun(Gossip(), table, network=network, tie_seed=tie_seed, lr=1.0)
    mean = -sum(float(BASE**iteration) for iteration in range(len(table[0]))) / len(table)
    expected = torch.full_like(run.parameters, mean)
    torch.testing.assert_close(run.parameters, expected, rtol=1e-12, atol=0)
    assert run.totals.applied == len(table) * len(table[0])


def test_a_gradient_is_at_the_parameters_before_the_average_and_changes_those_after_it():
    # Worker 1 takes one long step. Worker 0 averages with it, 4 ms, in each of its own.
    table = [[0.01, 0.01], [0.1, 0.1]]
    run = PeerRun(Gossip(), table, network=NetworkLaw(latency_s=0.004), lr=1.0)
    assert run.read[0, 0] == [0, 0]
    assert run.read[0, 1] == [-1, 0]
    # Its second average leaves half of the first step to worker 1; worker 0 has left by then.
    assert run.read[1, 1] == [-0.5, -1]


@pytest.mark.parametrize(
    ("lasts", "averages"),
    # a worker that is alone does not average any more
    [({0: 1}, 1 + 5 + 5), ({0: 1, 1: 2}, 1 + 2 + 2)],
)
def test_who_has_left_is_averaged_with_no_more(lasts, averages):
    run = PeerRun(Gossip(), [[0.01] * 5] * 3, network=NetworkLaw(latency_s=0.001), lasts=lasts)
    steps = {worker: len(run.rows("iteration", worker=worker)) for worker in range(3)}
    assert steps == {worker: lasts.get(worker, 5) for worker in range(3)}
    assert run.totals.all_reduces == averages
