"""Flows that are limited at one end: the same bits as by the plain rule, `max_min`."""

from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.wire import Wire

from outpace.cluster.machines import Machines
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.simulation.network import fair
from outpace.simulation.network.flow_table import FlowTable
from outpace.simulation.network.max_min import Flow, Resource, connected, max_min
from outpace.support.units import SECOND

MB, MS = 1_000_000, 1_000_000


class PlainTable:
    """As `FlowTable`, in loops over objects."""

    def __init__(self):
        self.rows = {}  # flow: [bytes to come, bytes/s, since, end, group]

    def resource(self, capacity):
        self._resources = getattr(self, "_resources", 0) + 1
        return Resource(capacity, self._resources)

    def begin(self, flow, size_bytes, now):
        self.rows[flow] = [float(size_bytes), 0.0, now, 0, 0]

    def leave(self, flow):
        flow.leave()
        del self.rows[flow]

    def due(self, group, now):
        found = [flow for flow, row in self.rows.items() if row[4] == group and row[3] <= now]
        return sorted(found, key=lambda flow: flow.number)

    def share_out(self, first, group, now):
        found, before = connected(first), set()
        rates = max_min(found)
        for flow, rate in rates.items():
            row = self.rows[flow]
            before.add(row[4])
            row[4] = group
            if rate != row[1]:
                left = row[0] - row[1] * (now - row[2]) / SECOND
                ticks = int(min(left / rate * SECOND + 0.5, 2.0**62))
                row[:4] = left, rate, now, now + ticks if left > 0 else now
        return {each.number for each in found}, before, min(self.rows[flow][3] for flow in rates)

    def row(self, flow):
        return self.rows[flow][:4]


class Table(FlowTable):
    def row(self, flow):
        if flow.resources[0].group is not None:
            return [column[flow.row].item() for column in flow.resources[0].group.columns]
        return [column[flow.place].item() for column in self._columns]


def history(table, capacities, instants):
    """Return all that is known of each flow after each change, and the order in which flows end.

    instants: milliseconds since the one before, flows that begin as (resources by number, bytes),
    and places of flows that are cut off.
    """
    resources = [table.resource(capacity) for capacity in capacities]
    now, group, number = 0, 0, 0
    running, alarms, found = [], {}, []
    waiting = []
    for gap, begins, cuts in instants:
        waiting.append(((waiting[-1][0] if waiting else 0) + gap * MS, begins, cuts))
    while waiting or alarms:
        now = min([*(end for end in alarms.values()), *(each[0] for each in waiting[:1])])
        changed, ended = {}, []
        for each in [each for each, end in alarms.items() if end <= now]:
            del alarms[each]
            for flow in table.due(each, now):
                table.leave(flow)
                running.remove(flow)
                ended.append(flow.number)
                changed.update(dict.fromkeys(flow.resources))
        while waiting and waiting[0][0] <= now:
            _, begins, cuts = waiting.pop(0)
            for uses, size in begins:
                flow = Flow(tuple(resources[place] for place in uses), None, number)
                number += 1
                table.begin(flow, size, now)
                running.append(flow)
                changed.update(dict.fromkeys(flow.resources))
            for place in cuts:
                if running:
                    flow = running.pop(place % len(running))
                    table.leave(flow)
                    changed.update(dict.fromkeys(flow.resources))
        done = set()
        for resource in changed:
            if resource.flows and resource.number not in done and resource.group not in done:
                group += 1
                linked, before, first = table.share_out(resource, group, now)
                done |= linked
                for other in before:
                    alarms.pop(other, None)
                alarms[group] = first
        found.append((now, ended, dict(alarms), [(f.number, *table.row(f)) for f in running]))
    return found


# Eight ports of workers, three of servers, two limits of pairs.
WIDE = st.sampled_from([2e9, 3e9, 1e10, 3.3e9])
NARROW = st.sampled_from([1e9, 1e9, 1e9, 0.7e9, 1.25e8])
CAPACITIES = st.tuples(*[WIDE] * 8, *[NARROW] * 3, *[st.sampled_from([0.9e9, 2e8])] * 2).map(list)
# Most flows as from workers to servers; others link two workers, or have one end alone.
USES = (
    st.tuples(st.integers(0, 7), st.integers(8, 10))
    | st.tuples(st.integers(0, 7), st.integers(8, 10))
    | st.tuples(st.integers(0, 7), st.integers(8, 10), st.integers(11, 12))
    | st.tuples(st.integers(8, 10))
    | st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda ends: ends[0] != ends[1])
)
PLAIN = st.tuples(st.integers(0, 7), st.integers(8, 10))
SIZES = st.sampled_from([MB, MB, MB, 2 * MB, 3 * MB, 7_654_321, 10])


def instants(uses):
    begins = st.lists(st.tuples(uses, SIZES), max_size=12)
    cuts = st.lists(st.integers(0, 99), max_size=2)
    return st.lists(st.tuples(st.integers(0, 3), begins, cuts), min_size=1, max_size=8)


ALL_TO_ALL = [((worker, server), MB) for worker in range(8) for server in (8, 9, 10)]
WAVES = [(1, ALL_TO_ALL[:12], []), (1, ALL_TO_ALL[12:], [3]), (1, ALL_TO_ALL[:9], [0])]


@settings(max_examples=120, deadline=None)
@given(CAPACITIES, instants(PLAIN) | instants(USES))
@example([1e10] * 8 + [1e9] * 5, WAVES)
def test_all_flows_have_the_bits_of_the_plain_rule_at_all_times(capacities, instants):
    plain = history(PlainTable(), capacities, instants)
    assert history(Table(few=1, worth=0), capacities, instants) == plain
    assert history(Table(few=6), capacities, instants) == plain


def shared_by_hubs(table):
    return sum(group.times_shared for group in table._hub_groups.values())


def saturated(workers, servers, few=1):
    """Return a table in which each worker (10 MB/ms) sends 1 MB to each server (1 MB/ms)."""
    table = Table(few)
    ports = [table.resource(1e10 if place < workers else 1e9) for place in range(workers + servers)]
    numbers = iter(range(1000))
    flows = [
        Flow((worker, server), None, next(numbers))
        for worker in ports[:workers]
        for server in ports[workers:]
    ]
    for flow in flows:
        table.begin(flow, MB, 0)
    assert table.share_out(ports[-1], 1, 0)[2] == workers * MS
    return table, ports, flows


def test_a_departure_from_saturated_servers_is_computed_by_hubs():
    table, ports, flows = saturated(workers=20, servers=2)
    for flow in flows[:2]:  # both of one worker; at 10 ms half of each has come
        table.leave(flow)
    linked, before, first = table.share_out(ports[-1], 2, 10 * MS)
    assert (linked, before) == ({ports[-1].group}, {1})
    assert first == 10 * MS + 19 * MS // 2
    assert [flow.number for flow in table.due(2, first)] == list(range(2, 40))
    assert table.due(1, first) == []
    assert shared_by_hubs(table) == 1


def test_a_flow_of_a_new_worker_joins_the_group():
    table, ports, _ = saturated(workers=20, servers=2)
    flow = Flow((table.resource(1e10), ports[-1]), None, 99)
    table.begin(flow, MB, 10 * MS)
    assert table.due(1, 10 * MS) == []
    # The 20 have half a MB left, and 1/21 MB/ms at this server; the other server is as before.
    assert table.share_out(ports[-1], 2, 10 * MS)[2] == 20 * MS
    assert table.row(flow) == [MB, 1e9 / 21, 10 * MS, 10 * MS + 21 * MS]
    assert shared_by_hubs(table) == 1


def test_a_flow_that_links_two_groups_makes_one_of_them():
    table, ports, _ = saturated(workers=20, servers=1)
    others = [table.resource(1e10) for _ in range(20)]
    server = table.resource(1e9)
    for number, other in enumerate(others):
        table.begin(Flow((other, server), None, 100 + number), MB, 0)
    assert table.share_out(server, 2, 0)[2] == 20 * MS
    assert ports[-1].group is not server.group
    table.begin(Flow((others[0], ports[-1]), None, 200), MB, 0)
    linked, before, _ = table.share_out(server, 3, 0)
    assert before == {0, 1, 2}
    assert linked >= {ports[-1].number, server.number}


def test_a_departure_that_splits_a_group_leaves_two():
    # Two servers with ten workers each; an eleventh sends to both.
    table = Table(few=1)
    ports = [table.resource(1e10) for _ in range(21)]
    left, right = table.resource(1e9), table.resource(1e9)
    for number, port in enumerate(ports):
        table.begin(Flow((port, left if number < 10 else right), None, number), MB, 0)
    link = Flow((ports[20], left), None, 99)
    table.begin(link, MB, 0)
    first, _, _ = table.share_out(left, 1, 0)
    assert first >= {left.number, right.number}
    table.leave(link)
    linked, before, end = table.share_out(left, 2, 0)
    assert (right.number in linked, before, end) == (False, {1}, 10 * MS)
    assert table.share_out(right, 3, 0)[1:] == ({1}, 11 * MS)


def test_a_worker_whose_port_becomes_full_limits_its_flows_itself():
    # 20 workers at two servers, one of them with 0.06 MB/ms: enough for 2 flows of 1/40 MB/ms at
    # one server, not for 2 of 1/20. 20 of the 40 flows at each server are of extra workers.
    table = Table(few=1)
    servers = [table.resource(1e9), table.resource(1e9)]
    slow = table.resource(6e7)
    ports = [slow, *(table.resource(1e10) for _ in range(39))]
    flows = [
        Flow((port, server), None, number)
        for number, (port, server) in enumerate((p, s) for p in ports for s in servers)
    ]
    for flow in flows:
        table.begin(flow, MB, 0)
    assert table.share_out(slow, 1, 0)[2] == 40 * MS
    assert slow.group is not None
    for flow in flows[40:]:  # of the last 20 workers
        table.leave(flow)
    table.share_out(slow, 2, 0)
    assert table.row(flows[0])[1] == 3e7
    assert table.row(flows[2])[1] == pytest.approx((1e9 - 3e7) / 19)


# -- the network ---------------------------------------------------------------------------

NODES = [*(f"worker-{n}" for n in range(6)), "server-0", "server-1"]
LAWS = st.builds(
    NetworkLaw,
    latency_s=st.sampled_from([0.0, 0.001]),
    bandwidth_bytes_per_s=st.sampled_from([None, 1e10, 3e9]),
    contention=st.just("fair"),
    nodes=st.fixed_dictionaries(
        {
            "server-0": st.just(LinkLaw(bandwidth_bytes_per_s=1e9)),
            "server-1": st.builds(LinkLaw, bandwidth_bytes_per_s=st.sampled_from([1e9, 2e8])),
        }
    ),
    pairs=st.sampled_from([(), (), (PairLaw(("worker-0", "server-1"), 0.002, 3e8),)]),
)
SENT = st.tuples(
    st.integers(0, 6),
    st.sampled_from(NODES[:6]),
    st.sampled_from(NODES[6:]),
    st.booleans(),  # from the server to the worker
    st.sampled_from([0, MB, MB, 2 * MB]),
)
CUTS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(NODES)), max_size=2)
TWO_EACH = {f"machine-{n}": [f"worker-{n}", f"worker-{n + 3}"] for n in range(3)}
MACHINES = st.sampled_from([None, None, Machines(6, 2, shared=TWO_EACH)])


def told(table, law, sent, cuts, machines, tie_seed):
    with patch.object(fair, "FlowTable", table):
        wire = Wire(law, NODES, tie_seed, machines=machines)
        for at, worker, server, back, size in sent:
            ends = (server, worker) if back else (worker, server)
            wire.send_at(at * MS, *ends, size)
        for at, node in cuts:
            wire.kernel.call_at(at * MS, lambda _, node=node: wire.network.cut(node))
        wire.run()
    return [(t.message, t.started, t.delivered) for t in wire.log], wire.arrivals


@settings(max_examples=80, deadline=None)
@given(LAWS, st.lists(SENT, max_size=40), CUTS, MACHINES, st.none() | st.integers(0, 999))
def test_messages_arrive_in_the_order_of_the_plain_rule_also_where_they_tie(
    law, sent, cuts, machines, tie_seed
):
    plain = told(PlainTable, law, sent, cuts, machines, tie_seed)
    assert told(partial(FlowTable, 1, 0), law, sent, cuts, machines, tie_seed) == plain
