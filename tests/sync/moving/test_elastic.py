"""Servers and workers join and leave one run in virtual time, in any order."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sync.moving.elastic_cluster import MOST, ElasticCluster

from outpace.sync import Asp, Bsp, Dsps, Policy, Ssp

SEEDS = st.integers(0, 10**6)
SERVERS = st.sets(st.integers(0, 4), min_size=1, max_size=4)
CHANGES = st.lists(
    st.tuples(st.floats(0, 1.5), SERVERS | st.integers(1, MOST)), min_size=2, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(SEEDS, CHANGES)
def test_bsp_steps_along_the_mean_of_the_workers_of_each_iteration(seed, changes):
    cluster = ElasticCluster(Bsp(), changes, seed)
    found = cluster.run().reshape(MOST, cluster.iterations)
    taking_part = Counter(iteration for _, iteration in cluster.begun_with)
    expected = torch.zeros_like(found)
    for worker, iteration in cluster.begun_with:
        expected[worker, iteration] = 1 / taking_part[iteration]
    assert torch.allclose(found, expected)
    assert taking_part.keys() == set(range(cluster.iterations))
    for (_, iteration), seen in cluster.begun_with.items():
        assert torch.allclose(seen[:, :iteration], expected[:, :iteration])
        assert not seen[:, iteration:].any()


@pytest.mark.parametrize(
    ("policy", "most"),
    [(Ssp(staleness=2), 2), (Asp(), 8), (Dsps(staleness=1, extra=2), 3)],
    ids=["ssp", "asp", "dsps"],
)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, changes=CHANGES)
def test_no_gradient_is_lost_or_counts_twice_and_bounds_hold(
    policy: Policy, most: int, seed: int, changes: list[tuple[float, set[int] | int]]
) -> None:
    cluster = ElasticCluster(policy, changes, seed)
    found = cluster.run().reshape(MOST, cluster.iterations)
    counted = {(int(w), int(i)) for w, i in found.nonzero()}
    assert counted == cluster.begun_with.keys()
    for key in counted:
        asked_for = torch.tensor(cluster.asked_for[cluster.known[key] :])
        assert torch.isclose(1 / asked_for, found[key]).any()
    for (_, iteration), seen in cluster.begun_with.items():
        due = [key for key in counted if key[1] < iteration - most]
        assert all(seen[key] > 0 for key in due)
