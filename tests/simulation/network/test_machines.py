"""Machines with several nodes, which share a connection: `network.machines`, by hand."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.wire import Wire

from outpace.cluster.machines import Machines
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.support.units import SECOND

MB = 1_000_000
MS = SECOND // 1000
R = 1e9  # bytes/s: 1 MB takes 1 ms
L = 0.0005  # s
BOTH = pytest.mark.parametrize("contention", ["serialised", "fair"])
NODES = ["worker-0", "worker-1", "worker-2", "server-0"]


def wire(contention, shared, **law):
    law = NetworkLaw(latency_s=L, bandwidth_bytes_per_s=R, contention=contention, **law)
    return Wire(law, NODES, machines=Machines(3, 1, shared=shared))


def pushes(contention, shared, *receivers, **law):
    """Return when 1 MB of each worker has arrived at its receiver, in ms, in order.

    Worker n sends to the n-th receiver, all at once.
    """
    net = wire(contention, shared, **law)
    for n, receiver in enumerate(receivers):
        net.send_at(0, f"worker-{n}", receiver, MB)
    return sorted(time / MS for time in net.run().delivered.values())


@BOTH
def test_messages_within_a_machine_take_the_loopback_alone(contention):
    # The loopback: 0.1 ms and 4 MB/ms. Two messages of 2 MB share it: both are through at 1 ms if
    # fair, else at 0.5 and 1 ms. The message to worker-2 has the connection to itself.
    loopback = LinkLaw(latency_s=1e-4, bandwidth_bytes_per_s=4e9)
    net = wire(contention, {"a": ("worker-0", "worker-1", "server-0")}, loopback=loopback)
    net.send_at(0, "worker-0", "server-0", 2 * MB)
    net.send_at(0, "worker-1", "server-0", 2 * MB)
    net.send_at(0, "worker-0", "worker-2", MB)
    first = 1.1 if contention == "fair" else 0.6
    delivered = net.run().delivered
    assert [delivered[n] / MS for n in range(3)] == [first, 1.1, 1.5]
    assert net.network.bytes_sent == MB


@BOTH
def test_the_connection_of_a_machine_is_as_slow_as_one_of_its_nodes_is_said_to_be(contention):
    slow = {"nodes": {"worker-1": LinkLaw(bandwidth_bytes_per_s=R / 4)}}
    shared = {"a": ("worker-0", "worker-1")}
    assert pushes(contention, shared, "server-0", "worker-2", **slow)[-1] == 8.5
    assert pushes(contention, {}, "server-0", "worker-2", **slow) == [1.5, 4.5]


# -- invariants -----------------------------------------------------------------------------

traffic = st.lists(
    st.tuples(
        st.integers(0, 3 * MS), st.sampled_from(NODES), st.sampled_from(NODES), st.integers(0, MB)
    ),
    min_size=1,
    max_size=25,
)
places = st.lists(st.sampled_from("abcd"), min_size=4, max_size=4)


def sent(contention, machine_of, messages):
    shared = defaultdict(list)
    for node, machine in zip(NODES, machine_of, strict=True):
        shared[machine].append(node)
    net = wire(contention, {name: tuple(nodes) for name, nodes in shared.items()})
    for time, sender, receiver, size in messages:
        net.send_at(time, sender, receiver, size)
    return net.run()


@BOTH
@settings(deadline=None, max_examples=40)
@given(machine_of=places, messages=traffic)
def test_no_connection_carries_more_than_its_rate(contention, machine_of, messages):
    of = dict(zip(NODES, machine_of, strict=True))
    net = sent(contention, machine_of, messages)
    assert len(net.log) == len(messages)
    carried = defaultdict(list)
    for each in net.log:
        sender, receiver = each.sender.name, each.receiver.name
        if of[sender] == of[receiver] and sender != receiver:
            assert each.delivered == each.requested
        elif each.size_bytes:
            carried[of[sender], "sends"].append(each)
            carried[of[receiver], "receives"].append(each)
    for way in carried.values():
        spans = sorted((each.started, each.delivered - L * SECOND) for each in way)
        if contention == "serialised":
            assert all(before[1] <= after[0] for before, after in pairwise(spans))
        total = sum(each.size_bytes for each in way) / R * SECOND
        span = max(end for _, end in spans) - min(begin for begin, _ in spans)
        assert span >= total - len(way)  # each is rounded to a nanosecond


# -- runs --------------------------------------------------------------------------------------


def run(network, **changes):
    """Return a BSP run of 1 s per iteration, with 1 MB for each of its servers."""
    return {
        "task": {"kind": "timing", "parameters": 250_000},
        "workers": 2,
        "servers": 1,
        "compute": {"kind": "constant", "mean_s": 1.0},
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 2},
        "network": network,
        **changes,
    }


# -- settings --------------------------------------------------------------------------------


def refusal(network, **changes):
    with pytest.raises(ConfigError) as error:
        experiment_from(run(network, **changes), "run.yaml")
    return str(error.value).split("\n")


def test_nodes_of_one_machine_cannot_have_different_links():
    shared = {"a": ["worker-0", "worker-1", "server-0"]}
    nodes = {"worker-*": {"latency_s": 1}, "server-0": {"latency_s": 2}}
    pairs = [{"between": ["worker-0", "server-0"], "latency_s": 1}]
    assert refusal({"machines": shared, "nodes": nodes, "pairs": pairs}) == [
        "run.yaml: network.pairs: worker-0 and server-0 are one machine (network.machines)",
        "run.yaml: network.nodes: worker-0 and worker-1 and server-0 are one machine "
        "(network.machines), so latency_s cannot be 1.0 and 1.0 and 2.0",
    ]
