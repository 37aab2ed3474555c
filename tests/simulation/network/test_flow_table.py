"""The table of flows: vectors and loops come to the same bits."""

from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.simulation.network.flow_table import FlowTable
from outpace.simulation.network.max_min import Flow

MB, MS = 1_000_000, 1_000_000


def ends(few, capacities, traffic):
    """Return when each flow ends (ns). traffic: begin in ms, resources by number, bytes."""
    table = FlowTable(few)
    resources = [table.resource(capacity) for capacity in capacities]
    waiting = sorted(enumerate(traffic), key=lambda each: each[1][0])
    now, group, found, running = 0, 0, {}, 0
    while waiting or running:
        while waiting and waiting[0][1][0] * MS <= now:
            number, (_, uses, size) = waiting.pop(0)
            flow = Flow(tuple(resources[place] for place in uses), None, number)
            table.begin(flow, size, now)
            running += 1
        firsts, groups, done = [], [], set()
        for resource in resources:
            if resource.flows and resource.number not in done:
                group += 1
                linked, _, first = table.share_out(resource, group, now)
                done |= linked
                firsts.append(first)
                groups.append(group)
        now = min([*firsts, *(waiting[:1] and [waiting[0][1][0] * MS])])
        for each in groups:
            for flow in table.due(each, now):
                table.leave(flow)
                found[flow.number] = now
                running -= 1
    return found


# 0 to 3 send and 4 to 7 receive; 8 and 9 are limits of pairs.
CAPACITY = st.floats(1e6, 1e10) | st.sampled_from([1e9, 1e9, 2e9, 3e9])
USES = st.tuples(st.integers(0, 3), st.integers(4, 7)) | st.tuples(
    st.integers(0, 3), st.integers(4, 7), st.integers(8, 9)
)
FLOW = st.tuples(st.integers(0, 4), USES, st.sampled_from([MB, MB, 2 * MB, 3 * MB, 7_654_321]))


@settings(max_examples=150, deadline=None)
@given(st.lists(CAPACITY, min_size=10, max_size=10), st.lists(FLOW, min_size=1, max_size=25))
def test_vectors_and_loops_have_the_same_ends_to_the_nanosecond(capacities, traffic):
    assert ends(1, capacities, traffic) == ends(10**9, capacities, traffic)


def test_the_flows_of_many_senders_share_each_receiver():
    # 100 senders to both of two receivers of 1 MB/ms: 1 MB each, so all end after 100 ms. There
    # are more flows than places at first.
    capacities = [1e9] * 102
    traffic = [(0, (sender, receiver), MB) for sender in range(100) for receiver in (100, 101)]
    assert set(ends(60, capacities, traffic).values()) == {100 * MS}


def test_a_flow_that_has_left_takes_no_share_of_its_receiver():
    table = FlowTable(few=1)
    one, two, three = (table.resource(1e9) for _ in range(3))
    gone = Flow((one, three))
    for flow in (gone, Flow((two, three))):
        table.begin(flow, MB, 0)
    assert table.share_out(three, 1, 0)[2] == 2 * MS
    table.leave(gone)
    assert table.share_out(three, 2, 0)[2] == MS


def test_a_limit_of_a_pair_counts_if_the_flows_before_it_have_none():
    table = FlowTable(few=1)
    one, two, three = (table.resource(1e9) for _ in range(3))
    table.begin(Flow((one, three)), MB, 0)
    assert table.share_out(three, 1, 0)[2] == MS
    table.begin(Flow((two, three, table.resource(0.25e9))), MB, 0)
    assert table.share_out(three, 2, 0)[2] == 1_333_333  # 0.75e9 bytes/s are left for the first


def test_vectors_answer_where_each_flow_has_one_bottleneck():
    table = FlowTable(few=1)
    ports = [table.resource(capacity) for capacity in (8e9, 8e9, 1e9, 3e9)]
    for sender in ports[:2]:
        for receiver in ports[2:]:
            table.begin(Flow((sender, receiver)), MB, 0)
    places = table._linked(ports[0])
    resources, rates = table._vector_of_rates(places)
    assert resources.tolist() == sorted(port.number for port in ports)
    assert sorted(rates) == [0.5e9, 0.5e9, 1.5e9, 1.5e9]
