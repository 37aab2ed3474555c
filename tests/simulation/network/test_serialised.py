"""The serialised network: closed forms, invariants, and an independent reference."""

import math
from collections import defaultdict
from itertools import pairwise

from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from tests.support.wire import Wire

from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.support.units import SECOND

MODERATE = settings(deadline=None, max_examples=80)
MB = 1_000_000
MS = SECOND // 1000
LAW = NetworkLaw(latency_s=0.001, bandwidth_bytes_per_s=1e9)  # 1 MB: 1 ms


# -- closed forms ----------------------------------------------------------------------


def test_a_message_of_no_bytes_leaves_with_the_one_before_it_on_its_connection():
    wire = Wire(LAW, "abc")
    for receiver, size in [("b", MB), ("b", 0), ("b", 0), ("c", 0), ("b", MB), ("b", 0)]:
        wire.send_at(0, "a", receiver, size)
    wire.send_at(MS // 2, "a", "b", 0)  # the second MB has not left yet
    wire.send_at(MS + MS // 2, "a", "b", 0)  # it is being sent
    wire.send_at(5 * MS, "a", "b", 0)
    wire.run()
    arrived = [(2, 0), (2, 1), (2, 2), (3, 4), (3, 5), (3, 6), (3, 7), (6, 8)]
    assert wire.arrivals["b"] == [(time * MS, message) for time, message in arrived]
    assert wire.arrivals["c"] == [(MS, 3)], "it waits for nothing that goes elsewhere"
    started = {transfer.message.content: transfer.started for transfer in wire.log}
    assert [started[message] for message in (1, 3, 6, 7, 8)] == [MS, 0, 2 * MS, 2 * MS, 5 * MS]


# -- invariants over random traffic ----------------------------------------------------

NODES = "abcd"
TRAFFIC = st.lists(
    st.tuples(
        st.integers(0, 12),  # ms
        st.sampled_from(NODES),
        st.sampled_from(NODES),
        st.sampled_from([0, MB, MB, 2 * MB, 5 * MB]),
    ),
    max_size=25,
)
LINKS = st.dictionaries(
    st.sampled_from(NODES),
    st.builds(
        LinkLaw,
        latency_s=st.none() | st.sampled_from([0.0, 0.003]),
        bandwidth_bytes_per_s=st.none() | st.sampled_from([5e8, 2e9]),
    ),
    max_size=2,
)
LAWS = st.builds(
    NetworkLaw,
    latency_s=st.sampled_from([0.0, 0.001]),
    bandwidth_bytes_per_s=st.just(1e9),
    nodes=LINKS,
)


def transport(law, traffic, tie_seed=None):
    wire = Wire(law, NODES, tie_seed)
    for milliseconds, sender, receiver, size in traffic:
        wire.send_at(milliseconds * MS, sender, receiver, size)
    return wire.run()


@MODERATE
@given(
    LAWS,
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0, 2 * MB, 5 * MB])), max_size=20),
    st.integers(0, 2**16),
)
@example(LAW, [("a", 2 * MB), ("a", 0)], 2)
def test_messages_from_one_to_another_stay_in_order_under_any_tie_seed(law, sent, tie_seed):
    # One ms apart, so that the sends themselves are no ties; their arrivals may be.
    traffic = [(k, sender, "c", size) for k, (sender, size) in enumerate(sent)]
    assert_in_order(transport(law, traffic, tie_seed), traffic)


def assert_in_order(wire, traffic):
    for got in wire.arrivals.values():
        by_sender = defaultdict(list)
        for _, message in got:
            by_sender[traffic[message][1]].append((traffic[message][0], message))
        for sequence in by_sender.values():
            assert all(earlier < later for earlier, later in pairwise(sequence))


# -- an independent reference ----------------------------------------------------------


def reference_deliveries(law, traffic):
    """Apply the rules in the module's docstring by brute force over lists.

    A message without bytes is kept with the one before it on its path, until that has left.

    A receiver keeps the senders that it turned away, in order. Rejects traffic in which a transfer
    ends at the very moment of a request or of another end: the rules do not say which one is first
    then.
    """
    usual = LinkLaw(law.latency_s, law.bandwidth_bytes_per_s)
    links = {node: law.own(node).over(usual) for node in NODES}
    ends = {node: (link.latency_s, link.bandwidth_bytes_per_s) for node, link in links.items()}
    requests = sorted(range(len(traffic)), key=lambda m: (traffic[m][0], m))
    queue = {node: [] for node in NODES}  # messages not begun, by sender
    turned_away = {node: [] for node in NODES}  # senders, by receiver
    behind = defaultdict(list)  # messages without bytes, by the last one with bytes on their path
    last = {}  # path -> the last message with bytes that has not left
    running = []  # (end, message), in order of beginning
    delivered = {}

    def sending(node):
        return any(traffic[m][1] == node for _, m in running)

    def receiving(node):
        return any(traffic[m][2] == node for _, m in running)

    def look(sender, now):
        for message in list(queue[sender]):
            _, _, receiver, size = traffic[message]
            if sending(sender):
                return
            if receiving(receiver) or sender in turned_away[receiver]:
                if sender not in turned_away[receiver]:
                    turned_away[receiver].append(sender)
                continue
            queue[sender].remove(message)
            bandwidth = min(ends[sender][1], ends[receiver][1])
            running.append((now + math.floor(size / bandwidth * SECOND + 0.5), message))

    def deliver(message, now):
        _, sender, receiver, _ = traffic[message]
        for each in (message, *behind[message]):
            delivered[each] = now + round(max(ends[sender][0], ends[receiver][0]) * SECOND)
        if last.get((sender, receiver)) == message:
            del last[sender, receiver]

    while requests or running:
        moments = {traffic[m][0] * MS for m in requests[:1]}
        now = min([*moments, *(end for end, _ in running)])
        if sum(end == now for end, _ in running) + (now in moments) > 1:
            reject()
        while requests and traffic[requests[0]][0] * MS == now:
            message = requests.pop(0)
            _, sender, receiver, size = traffic[message]
            if size:
                last[sender, receiver] = message
                queue[sender].append(message)
                look(sender, now)
            elif (before := last.get((sender, receiver))) is not None:
                behind[before].append(message)
            else:
                deliver(message, now)
        while ended := [entry for entry in running if entry[0] == now]:
            running.remove(ended[0])
            message = ended[0][1]
            _, sender, receiver, _ = traffic[message]
            deliver(message, now)
            while turned_away[receiver] and not receiving(receiver):
                look(turned_away[receiver].pop(0), now)
            look(sender, now)
    assert not any(queue.values())
    return delivered


@settings(deadline=None, max_examples=300)
@given(LAWS, TRAFFIC)
def test_delivery_times_are_those_of_a_brute_force_reference(law, traffic):
    # Sizes that hardly ever add up to the same times.
    traffic = [
        (at, sender, receiver, size + bool(size) * (k + 1) ** 2 * 1009)
        for k, (at, sender, receiver, size) in enumerate(traffic)
    ]
    assert transport(law, traffic).delivered == reference_deliveries(law, traffic)
