"""Machines with several nodes, which share a connection: `network.machines`, by hand."""

import pytest
from tests.support.wire import Wire

from outpace.cluster.machines import Machines
from outpace.cluster.network import LinkLaw, NetworkLaw
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

# -- runs --------------------------------------------------------------------------------------


# -- settings --------------------------------------------------------------------------------
