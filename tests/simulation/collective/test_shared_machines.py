"""Averages among workers that share machines: closed forms, exact to a nanosecond."""

import pytest

from outpace.cluster.collectives import Costs
from outpace.cluster.machines import Machines
from outpace.cluster.network import NetworkLaw
from outpace.cluster.paths import Paths
from outpace.experiment.running import simulate
from outpace.support.units import SECOND

MB = 1_000_000
MS = SECOND // 1000
L, R = 0.0005, 1e9  # s, bytes/s: 1 MB takes 1 ms
BOTH = pytest.mark.parametrize("contention", ["serialised", "fair"])
NEIGHBOURS = {"a": ("worker-0", "worker-1"), "b": ("worker-2", "worker-3")}
CROSSWISE = {"a": ("worker-0", "worker-2"), "b": ("worker-1", "worker-3")}
TOGETHER = {"a": ("worker-0", "worker-1", "worker-2", "worker-3")}


def law(contention="serialised", **more):
    return NetworkLaw(latency_s=L, bandwidth_bytes_per_s=R, contention=contention, **more)


def costs(shared, workers=4, **more):
    return Costs(Paths(law(**more), Machines(workers, 0, shared=shared)))


def config_of(kind, machines, *, parameters=MB, iterations=1, **network):
    """Return the configuration of 4 workers whose links have latency L and bandwidth R."""
    return {
        "task": {"kind": "timing", "parameters": parameters},
        "workers": 4,
        "sync": {"kind": kind},
        "compute": {"kind": "constant", "mean_s": 0.1},
        "stop": {"iterations": iterations},
        "network": {
            "latency_s": L,
            "bandwidth_bytes_per_s": R,
            "machines": {name: list(nodes) for name, nodes in machines.items()},
            **network,
        },
    }


def averages_of(result):
    return [row for row in result.trace.to_pylist() if row["event"] == "all-reduce"]


# A chunk of 1 MB in each of 6 rounds: the time of the crossing messages of a machine, and latency.
@pytest.mark.parametrize(
    ("shared", "ms", "crossing"),
    [
        ({}, 6 * 1.5, 4),
        (NEIGHBOURS, 6 * 1.5, 2),  # one leaves each machine
        (CROSSWISE, 6 * 2.5, 4),  # two do
        ({"a": ("worker-1", "worker-2", "worker-3")}, 6 * 1.5, 2),
        (TOGETHER, 0.0, 0),
    ],
)
@BOTH
def test_a_ring_takes_what_the_busiest_machine_sends_or_receives(contention, shared, ms, crossing):
    # 4 MB: chunks of 1 MB
    result = simulate(config_of("ssgd", shared, iterations=2, contention=contention))
    rows = averages_of(result)
    # Messages end by themselves, the formula ends all workers with the last.
    assert max(row["end_ns"] - row["computed_ns"] for row in rows) == ms * MS
    assert result.summary["bytes_sent"] == 2 * 6 * crossing * MB
    assert result.summary["messages"] == 2 * 6 * 4


def test_the_first_rounds_of_a_tree_stay_within_machines():
    # Up and down 4 MB: 1 -> 0 and 3 -> 2 within machines, 2 -> 0 between them.
    assert costs(NEIGHBOURS).of("tree", range(4), 4 * MB).duration == 2 * 4.5 * MS
    assert costs(CROSSWISE).of("tree", range(4), 4 * MB).duration == 2 * 8.5 * MS
    assert costs({}).of("tree", range(4), 4 * MB).duration == 2 * 2 * 4.5 * MS
