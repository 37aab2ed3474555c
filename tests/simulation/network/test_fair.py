"""The fair network: shares by hand, the max-min algorithm, and SimGrid's closed forms."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.wire import Wire

from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.cluster.paths import Paths
from outpace.simulation.network.max_min import Flow, Resource, max_min
from outpace.support.units import SECOND

MB = 1_000_000
MS = SECOND // 1000
LAW = NetworkLaw(latency_s=0.001, bandwidth_bytes_per_s=1e9, contention="fair")  # 1 MB: 1 ms
ONE = 1  # ns


# -- by hand ---------------------------------------------------------------------------


@pytest.mark.parametrize("tie_seed", range(8))
def test_a_pull_never_overtakes_the_push_before_it(tie_seed):
    wire = Wire(LAW, ["worker", "server"], tie_seed)

    def send(_):
        wire.send("worker", "server", "push", MB)
        wire.send("worker", "server", "pull", 0)

    wire.kernel.call_at(0, send)
    wire.run()
    assert wire.arrivals["server"] == [(2 * MS, "push"), (2 * MS, "pull")]


# -- max-min itself ----------------------------------------------------------------------


@st.composite
def usage(draw):
    """Draw capacities, and for each flow the numbers of its resources."""
    capacity = st.floats(1, 1e12) | st.sampled_from([1.0, 2.0, 3.0, 6.0])
    capacities = draw(st.lists(capacity, min_size=1, max_size=7))
    places = st.integers(0, len(capacities) - 1)
    flows = draw(st.lists(st.sets(places, min_size=1, max_size=3), max_size=14))
    return capacities, [sorted(flow) for flow in flows]


def made(capacities, uses):
    resources = [Resource(capacity) for capacity in capacities]
    return resources, [Flow(tuple(resources[place] for place in each)) for each in uses]


@settings(max_examples=300)
@given(usage())
def test_every_flow_has_a_full_resource_on_which_none_is_faster(given_):
    # Bertsekas and Gallager, Data Networks, section 6.5.2: this is max-min fairness.
    resources, flows = made(*given_)
    rates = max_min(resources)
    assert set(rates) == set(flows)
    used = {resource: math.fsum(rates[f] for f in resource.flows) for resource in resources}
    assert all(used[resource] <= resource.capacity * (1 + 1e-9) for resource in resources)
    for flow in flows:
        assert rates[flow] > 0
        assert any(
            used[resource] >= resource.capacity * (1 - 1e-9)
            and rates[flow] >= max(rates[other] for other in resource.flows) * (1 - 1e-9)
            for resource in flow.resources
        )


# -- the network, over random traffic ------------------------------------------------------

NODES = "abcd"
TRAFFIC = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.sampled_from(NODES),
        st.sampled_from(NODES),
        st.sampled_from([0, MB, MB, 2 * MB, 5 * MB]),
    ),
    max_size=25,
)
LAWS = st.builds(
    NetworkLaw,
    latency_s=st.sampled_from([0.0, 0.001]),
    bandwidth_bytes_per_s=st.just(1e9),
    contention=st.just("fair"),
    nodes=st.dictionaries(
        st.sampled_from(NODES),
        st.builds(LinkLaw, bandwidth_bytes_per_s=st.sampled_from([5e8, 2e9, 3e9])),
        max_size=2,
    ),
    pairs=st.sampled_from([(), (PairLaw(("a", "b"), 0.002, 3e8),)]),
)


def reference(law, traffic):
    """Return times of delivery, with the rates of all flows computed at every change, in floats."""
    capacity, paths = {}, Paths(law)
    for node in NODES:
        capacity[node, "out"] = capacity[node, "in"] = paths.bandwidth(node)
    pairs = {frozenset(pair.between): pair for pair in law.pairs}
    waiting = sorted(range(len(traffic)), key=lambda m: (traffic[m][0], m))
    left, begun, delivered, now = {}, {}, {}, 0.0
    queues = {}  # of pairs

    def begin(link):
        while queues[link]:
            message = queues[link][0]
            begun[message] = now
            if traffic[message][3]:
                left[message] = float(traffic[message][3])
                return
            arrive(queues[link].pop(0))

    def arrive(message):
        _, *ends, _ = traffic[message]
        pair = pairs.get(frozenset(ends))
        delivered[message] = now + (law.latency_s if pair is None else pair.latency_s)

    while waiting or left:
        resources = {key: Resource(value) for key, value in capacity.items()}
        flows = {}
        for message in left:
            _, sender, receiver, _ = traffic[message]
            uses = [resources[sender, "out"], resources[receiver, "in"]]
            if frozenset((sender, receiver)) in pairs:
                uses.append(Resource(pairs[frozenset((sender, receiver))].bandwidth_bytes_per_s))
            flows[message] = Flow(tuple(uses))
        everything = {r: None for flow in flows.values() for r in flow.resources}
        rates = max_min(everything)
        ends = {message: now + left[message] / rates[flow] for message, flow in flows.items()}
        then = min([*ends.values(), *(traffic[m][0] / 1000 for m in waiting[:1])])
        for message, flow in flows.items():
            left[message] -= rates[flow] * (then - now)
        now = then
        for message in [m for m, end in ends.items() if end <= now + 1e-12]:
            del left[message]
            link = traffic[message][1:3]
            queues[link].remove(message)
            arrive(message)
            begin(link)
        while waiting and traffic[waiting[0]][0] / 1000 <= now:
            message = waiting.pop(0)
            link = traffic[message][1:3]
            queues.setdefault(link, []).append(message)
            if queues[link] == [message]:
                begin(link)
    return delivered


@settings(max_examples=200)
@given(LAWS, TRAFFIC, st.none() | st.integers(0, 2**16))
def test_deliveries_are_those_of_rates_made_globally_at_every_change(law, traffic, tie_seed):
    # Sizes that hardly ever add up to the same times; so the order of ties does not matter.
    traffic = [
        (at + k / 1000, sender, receiver, size + bool(size) * (k + 1) ** 2 * 1009)
        for k, (at, sender, receiver, size) in enumerate(traffic)
    ]
    wire = Wire(law, NODES, tie_seed)
    for milliseconds, sender, receiver, size in traffic:
        wire.send_at(round(milliseconds * MS), sender, receiver, size)
    delivered = wire.run().delivered
    expected = reference(law, traffic)
    assert delivered.keys() == expected.keys()
    for message, seconds in expected.items():
        assert abs(delivered[message] - seconds * SECOND) <= 30 * ONE
