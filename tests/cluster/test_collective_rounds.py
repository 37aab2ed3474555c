"""How long the collectives of torch.distributed take, against the formulas of their algorithms."""

from __future__ import annotations

import math

import pytest

from outpace.cluster.collectives import Costs
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.cluster.paths import Paths

L, B, M = 0.002, 1e7, 840_000  # seconds, bytes/s, bytes


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize(
    ("pattern", "takes"),
    [
        ("broadcast", lambda n, log: log * (L + M / B)),
        ("reduce", lambda n, log: log * (L + M / B)),
        ("all_gather", lambda n, log: (n - 1) * (L + M / B)),
        ("reduce_scatter", lambda n, log: (n - 1) * (L + M / n / B)),
        ("all_to_all", lambda n, log: (n - 1) * (L + M / n / B)),
        ("gather", lambda n, log: (n - 1) * (L + M / B)),
        ("scatter", lambda n, log: (n - 1) * (L + M / B)),
    ],
)
def test_a_collective_takes_its_formula(pattern, takes, n):
    costs = Costs(Paths(NetworkLaw(L, B), None))
    expected = takes(n, math.ceil(math.log2(n))) * 1e9
    assert costs.of(pattern, range(n), M).duration == pytest.approx(expected, abs=1)
    barrier = math.ceil(math.log2(n)) * L * 1e9
    assert costs.of("barrier", range(n), 0).duration == pytest.approx(barrier, abs=1)


def test_a_slow_member_slows_a_collective_down():
    law = NetworkLaw(L, B, nodes={"worker-2": LinkLaw(bandwidth_bytes_per_s=B / 4)})
    found = Costs(Paths(law, None)).of("all_gather", range(3), M).duration
    assert found == pytest.approx(2 * (L + 4 * M / B) * 1e9, abs=1)
