"""Random delays: the delayed messages, their number, and the messages that wait for them."""

import pytest
from tests.support.wire import Wire

from outpace.cluster.delays import Delay, Lateness
from outpace.cluster.machines import Machines
from outpace.cluster.network import NetworkLaw
from outpace.support.units import SECOND
from outpace.sync.messages import Leave, Pull, Push, Reply

MB = 1_000_000
MS = SECOND // 1000


def test_a_rule_is_for_its_type_and_its_nodes_and_rules_add_up():
    rules = [
        Delay("push", 1.0, 1.0, nodes=("worker-1",)),
        Delay("push", 1.0, 2.0, nodes=("server-*",)),
        Delay("reply", 1.0, 4.0, nodes=("server-1", "worker-0")),
    ]
    lateness = Lateness(rules, 0, Machines(2, 2))

    def seconds(sender, receiver, message):
        return lateness.of(sender, receiver, message) / SECOND

    assert seconds("worker-0", "server-0", Push(0, 0, 0)) == 2
    assert seconds("worker-1", "server-0", Push(1, 0, 0)) == 3
    assert seconds("worker-1", "server-0", Pull(1, 0)) == 0
    assert seconds("worker-1", "server-0", Leave(1)) == 0
    assert seconds("server-0", "worker-0", Reply(0, 0, 0, 0, 0, 0)) == 4
    assert seconds("server-1", "worker-1", Reply(1, 1, 0, 0, 0, 0)) == 4
    assert seconds("server-0", "worker-1", Reply(0, 1, 0, 0, 0, 0)) == 0


@pytest.mark.parametrize("contention", ["serialised", "fair"])
@pytest.mark.parametrize("tie_seed", [None, 1, 2, 3])
def test_a_delay_occupies_no_node_and_later_messages_of_the_link_wait(contention, tie_seed):
    law = NetworkLaw(0.001, 1e9, contention, delays=(Delay("push", 1.0, 4.0, nodes=("worker-0",)),))
    names = ["worker-0", "worker-1", "server-0", "server-1"]
    wire = Wire(law, names, tie_seed, machines=Machines(2, 2))
    first, pull, second = Push(0, 0, 0), Pull(0, 0), Push(1, 0, 0)
    wire.send_at(0, "worker-0", "server-0", MB, first)
    wire.send_at(1, "worker-0", "server-0", 0, pull)
    wire.send_at(2 * MS, "worker-1", "server-0", MB, second)
    wire.run()
    late = 2 * MS + 4 * SECOND  # sent at 0, through at 1 ms, and a latency of 1 ms
    assert wire.arrivals["server-0"] == [(4 * MS, second), (late, first), (late, pull)]


@pytest.mark.parametrize("contention", ["serialised", "fair"])
def test_a_late_reply_is_overtaken_by_the_next_one(contention):
    seed = 2  # the first of the first two replies is late by this time
    rule = Delay("reply", 0.5, 4.0)
    lateness = Lateness([rule], seed, Machines(1, 1))
    replies = [Reply(0, 0, i, i, i, 0) for i in range(2)]
    assert [lateness.of("server-0", "worker-0", r) // SECOND for r in replies] == [4, 0]
    law = NetworkLaw(0.001, 1e9, contention, delays=(rule,))
    wire = Wire(law, ["worker-0", "server-0"], machines=Machines(1, 1), seed=seed)
    for reply in replies:
        wire.send_at(0, "server-0", "worker-0", MB, reply)
    wire.run()
    assert wire.arrivals["worker-0"] == [(3 * MS, replies[1]), (2 * MS + 4 * SECOND, replies[0])]
