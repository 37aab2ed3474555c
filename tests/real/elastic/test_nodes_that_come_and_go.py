"""What a run is asked for as the nodes of its cluster come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.real.elastic.deciding import (
    RETRY_S,
    GoWithout,
    Memory,
    Order,
    Rules,
    Scale,
    Waiting,
    decide,
    fewer,
    seen,
)
from outpace.real.elastic.view import ClusterView, Node, RunView

TWO = {"CPU": 2.0}
RULES = Rules(workers=(2, 8), servers=(1, 3), each={"worker": TWO, "server": TWO}, settle_s=10.0)
RUN = RunView(workers=["worker-0", "worker-1"], servers=["server-0"])
PLACES = {"worker-0": "a", "worker-1": "a", "server-0": "b"}


def node(name: str, cpus: float = 0.0, *, drained: bool = False) -> Node:
    return Node(name, name, {"CPU": cpus}, drained)


def cluster(*nodes: Node, places: dict[str, str] = PLACES, **kept: Sequence[str]) -> ClusterView:
    return ClusterView(nodes, places, kept)


FULL = cluster(node("a"), node("b", 1.0))  # a process needs two
JOINED = cluster(node("a"), node("b", 1.0), node("four", 4.0))


def orders(
    *looks: tuple[float, ClusterView, RunView], rules: Rules = RULES, memory: Memory | None = None
) -> list[Order | None]:
    """Return the orders after these looks. Each begins with its time in seconds."""
    memory = memory or Memory()
    found = []
    for now_s, view, run in looks:
        memory, order = decide(rules, memory, view, run, now_s)
        found.append(order)
    return found


def settled(seen: ClusterView, run: RunView, rules: Rules = RULES) -> Any:
    """Return the order when this was seen for as long as it takes, after the full cluster."""
    return orders((0, FULL, RUN), (20, seen, run), (30, seen, run), rules=rules)[-1]


def test_a_node_that_joined_takes_a_server_and_a_worker():
    # Shares of the most: 2/8 workers, so a worker; then 1/3 servers, so a server.
    why = "node four joined: 1 server more, 1 worker more"
    assert settled(JOINED, RUN) == Scale(3, 2, [], (3, 2), why)


def test_a_node_that_joined_takes_workers_of_a_run_without_servers():
    peers = RunView(workers=RUN.workers, servers=[])
    rules = replace(RULES, servers=None)
    looks = [(now_s, JOINED if now_s else FULL, peers) for now_s in (0, 20, 30)]
    why = "node four joined: 2 workers more"
    assert orders(*looks, rules=rules)[-1] == Scale(4, None, [], (4, 0), why)


def test_one_change_at_a_time():
    busy = replace(RUN, is_busy=True)
    looks = [(0, JOINED, RUN), (10, JOINED, RUN), (10.5, JOINED, busy), (60, JOINED, busy)]
    first, *others = orders(*looks, (69, JOINED, RUN))[1:]
    assert isinstance(first, Scale)
    assert others == [None] * 3


def test_what_had_no_room_is_asked_for_again_only_later_and_less_of_it_before():
    memory, first = decide(RULES, Memory(), JOINED, RUN, 0)
    assert first is None
    asked: list[tuple[float, tuple[int, int]]] = []
    for now_s in range(10, 340, 5):
        memory, order = decide(RULES, memory, JOINED, RUN, now_s)
        if isinstance(order, Scale):
            asked.append((now_s, order.aim))
            memory = memory.has_failed(order, now_s)
    assert RETRY_S == 300
    assert asked == [(10, (3, 2)), (20, (3, 1)), (320, (3, 2)), (330, (3, 1))]


WIDE = RunView([f"worker-{n}" for n in range(4)], ["server-0", "server-1"])
ON_BOTH = {
    "worker-0": "a",
    "worker-1": "a",
    "server-0": "a",
    "worker-2": "b",
    "worker-3": "b",
    "server-1": "b",
}


def test_a_node_that_is_drained_is_left_by_workers_and_servers():
    drained = cluster(node("a"), node("b", drained=True), places=ON_BOTH)
    why = "node b will be removed: 1 server fewer, 2 workers fewer, without server-1"
    assert settled(drained, WIDE) == Scale(2, 1, ["server-1", "worker-2", "worker-3"], (2, 1), why)


def test_a_server_on_a_drained_node_is_replaced_where_there_is_room():
    drained = cluster(node("a", 2.0), node("b", drained=True), places=ON_BOTH)
    order = settled(drained, WIDE, replace(RULES, servers=(2, 2)))
    # The only place goes to the server, of which there are fewer than the least.
    assert order.without == ["server-1", "worker-2", "worker-3"]
    assert (order.workers, order.servers) == (2, 2)


def lost(*names: str) -> tuple[ClusterView, RunView]:
    """Node b is gone; these workers come back and have no place."""
    places = {name: on for name, on in ON_BOTH.items() if name not in names}
    run = replace(WIDE, returning=["worker-0", *names], is_busy=True)
    return cluster(node("a"), places=places), run


def given_up(*names: str, rules: Rules = RULES, until_s: float = 30) -> Order | None:
    before = cluster(node("a"), node("b"), places=ON_BOTH)
    return orders((0, before, WIDE), (20, *lost(*names)), (until_s, *lost(*names)), rules=rules)[-1]


def test_lost_workers_without_a_place_are_given_up_though_others_come_back():
    why = "node b left, and there is no room for worker-2, worker-3: the others continue"
    assert given_up("worker-2", "worker-3") == GoWithout(["worker-2", "worker-3"], why)


def test_as_many_workers_as_the_least_are_never_given_up():
    found = given_up("worker-1", "worker-3", rules=replace(RULES, workers=(3, 8)))
    assert isinstance(found, GoWithout)
    assert found.workers == ["worker-3"]
    assert given_up("worker-3", rules=replace(RULES, workers=(4, 8))) is None
    assert given_up("worker-3", rules=replace(RULES, workers=None)) is None


def test_a_run_of_a_script_waits_for_lost_workers():
    """A script that was given up could not continue from a checkpoint."""
    script = replace(RULES, gives_up=False)
    assert given_up("worker-3", rules=script) is None
    assert settled(JOINED, RUN, script) == settled(JOINED, RUN)


ONLY_SERVERS = replace(RULES, workers=None)


# -- a run that begins again --------------------------------------------------------------


@pytest.mark.parametrize(
    ("without", "at_s", "rules", "numbers"),
    [
        (["worker-1"], 30, RULES, (3, None)),
        (["worker-1", "worker-3"], 30, RULES, (2, None)),
        (["worker-1", "server-0"], 30, RULES, (3, 1)),
        (["worker-1"], 29, RULES, None),  # not for long enough
        ([], 30, RULES, None),
        (["worker-1", "worker-2", "worker-3"], 30, RULES, None),  # the least is 2
        (["server-0", "server-1"], 30, RULES, None),  # the least is 1
        (["server-0"], 30, replace(RULES, servers=None), None),
        (["worker-1"], 30, ONLY_SERVERS, None),
    ],
)
def test_a_run_begins_again_with_as_many_processes_as_have_a_place(without, at_s, rules, numbers):
    places = {name: on for name, on in ON_BOTH.items() if name not in without}
    now, all_names = cluster(node("a"), places=places), [*WIDE.servers, *WIDE.workers]
    waiting = seen(Waiting(), cluster(node("a"), places=ON_BOTH), all_names, 0)
    for look_s in (20, at_s):
        waiting = seen(waiting, now, all_names, look_s)
    found = fewer(rules, waiting, now, WIDE.workers, WIDE.servers, at_s)
    assert (None if found is None else (found.workers, found.servers)) == numbers


# -- any cluster ------------------------------------------------------------------------


class Simulated:
    """A cluster whose processes need one CPU each, and a run that does what it is asked for."""

    def __init__(self, cpus: int) -> None:
        self.nodes = {"n0": cpus}
        self.drained: set[str] = set()
        self.present = ["worker-0", "worker-1"]
        self.absent: list[str] = []
        self.servers = ["server-0"]
        self.places = dict.fromkeys([*self.present, *self.servers], "n0")
        self.newest = 0

    def free(self, name: str) -> int:
        return self.nodes[name] - sum(on == name for on in self.places.values())

    def put(self, role: str) -> bool:
        room = [name for name in self.nodes if name not in self.drained and self.free(name) > 0]
        if room:
            self.places[role] = room[0]
        return bool(room)

    def change(self, event: tuple[str, int]) -> None:
        kind, number = event
        if kind == "join":
            self.nodes[f"n{len(self.nodes) + len(self.drained) + 10 * number}"] = number
        others = [name for name in self.nodes if name != "n0"]  # it has the first processes
        if others and kind == "drain":
            self.drained.add(others[number % len(others)])
        if others and kind == "die":
            gone = others[number % len(others)]
            self.drained.discard(gone)
            del self.nodes[gone]
            self.places = {role: on for role, on in self.places.items() if on != gone}
        for server in self.servers:  # a run of a lost server begins again
            if server not in self.places and not self.put(server):
                self.servers = self.servers[:1]

    @property
    def unplaced(self) -> list[str]:
        return [name for name in self.present if name not in self.places]

    def step(self) -> None:
        for name in self.unplaced:
            self.put(name)

    def views(self) -> tuple[ClusterView, RunView]:
        found = [node(name, self.free(name), drained=name in self.drained) for name in self.nodes]
        unplaced = self.unplaced
        run = RunView(list(self.present), list(self.servers), unplaced, bool(unplaced))
        return ClusterView(found, dict(self.places)), run

    def do(self, order: Order) -> None:
        if isinstance(order, GoWithout):
            self.present = [name for name in self.present if name not in order.workers]
            self.absent = sorted([*self.absent, *order.workers])
            return
        if order.servers is not None:
            for name in order.without:
                if name in self.servers:
                    self.servers.remove(name)
                    del self.places[name]
            for name in self.servers[order.servers :]:
                del self.places[name]
            self.servers = self.servers[: order.servers]
            while len(self.servers) < order.servers:
                self.newest += 1
                self.servers.append(f"server-{self.newest}")
                assert self.put(self.servers[-1])
        if order.workers is not None:
            names = [f"worker-{n}" for n in range(order.workers)]
            for name in set(self.present) - set(names):
                del self.places[name]
            before = len(self.present) + len(self.absent)
            is_less = order.workers < before
            joining = [] if is_less else [n for n in names if n not in self.present]
            joining = [name for name in joining if name not in order.without]
            for name in joining:
                assert self.put(name)
            self.present = [n for n in names if n in self.present or n in joining]
            self.absent = [n for n in names if n not in self.present]


EVENTS = st.tuples(st.sampled_from(["join", "drain", "die"]), st.integers(0, 4))


@settings(max_examples=40, deadline=None)
@given(
    cpus=st.integers(3, 6),
    events=st.lists(EVENTS, max_size=6),
    low=st.tuples(st.integers(1, 2), st.just(1)),
    more=st.tuples(st.integers(0, 4), st.integers(0, 2)),
)
def test_in_any_cluster_it_keeps_its_bounds_waits_and_comes_to_rest(cpus, events, low, more):
    rules = Rules(
        (low[0], 2 + more[0]), (1, 1 + more[1]), {"worker": {"CPU": 1}, "server": {"CPU": 1}}, 10.0
    )
    assert rules.workers is not None
    assert rules.servers is not None
    simulated, memory, now_s = Simulated(cpus), Memory(), 0.0
    for event in [None, *events]:
        if event is not None:
            simulated.change(event)
        changed_s, given = now_s, 0
        directions: list[bool] = []
        for _ in range(60):
            now_s += 2.0
            simulated.step()
            memory, order = decide(rules, memory, *simulated.views(), now_s)
            if order is None:
                continue
            assert now_s - changed_s >= rules.settle_s
            changed_s, given = now_s, given + 1
            before = len(simulated.present)
            simulated.do(order)
            after = len(simulated.present)
            assert rules.workers[0] <= after <= rules.workers[1]
            assert rules.servers[0] <= len(simulated.servers) <= rules.servers[1]
            if after != before:
                directions.append(after > before)
        # At rest, and never up and then down again.
        assert now_s - changed_s > 40
        assert directions == sorted(directions), directions
        # What there is room for is used.
        full = not any(
            simulated.free(name) > 0 for name in simulated.nodes if name not in simulated.drained
        )
        most = rules.workers[1], rules.servers[1]
        assert full or (len(simulated.present), len(simulated.servers)) == most
