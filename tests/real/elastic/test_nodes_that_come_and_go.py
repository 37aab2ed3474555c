"""The requests to a run when nodes of its cluster are added and removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from outpace.real.elastic.deciding import (
    RETRY_S,
    Change,
    ClusterView,
    Memory,
    Node,
    Rules,
    RunView,
    decide,
)

TWO = {"CPU": 2.0}
BOUNDS = {"worker": (2, 8), "server": (1, 3)}
RULES = Rules(BOUNDS, each={"worker": TWO, "server": TWO}, settle_s=10.0)
RUN = RunView(workers=["worker-0", "worker-1"], servers=["server-0"])
PLACES = {"worker-0": "a", "worker-1": "a", "server-0": "b"}


def node(name: str, cpus: float = 0.0, *, drained: bool = False) -> Node:
    return Node(name, name, {"CPU": cpus}, drained)


def cluster(*nodes: Node, places: dict[str, str] = PLACES, **kept: Sequence[str]) -> ClusterView:
    return ClusterView(nodes, places, kept)


FULL = cluster(node("a"), node("b", 1.0))  # a process needs two
JOINED = cluster(node("a"), node("b", 1.0), node("four", 4.0))


def orders(*looks: tuple[float, ClusterView, RunView], rules: Rules = RULES) -> list[Change | None]:
    """Return the orders after these observations. Each begins with its time in seconds."""
    memory, found = Memory(), []
    for now_s, view, run in looks:
        memory, order = decide(rules, memory, view, run, now_s)
        found.append(order)
    return found


def settled(seen: ClusterView, run: RunView = RUN, rules: Rules = RULES) -> Any:
    """Return the order when this state has lasted long enough, after the full cluster."""
    return orders((0, FULL, run), (20, seen, run), (30, seen, run), rules=rules)[-1]


@pytest.mark.parametrize(
    ("view", "rules", "expected"),
    [
        # Shares of the most: 2/8 workers, so a worker; then 1/3 servers, so a server.
        (JOINED, RULES, Change(3, 2, "there is room: 1 server and 1 worker more")),
        (
            JOINED,
            replace(RULES, bounds={"worker": (2, 8)}),
            Change(4, None, "there is room: 2 workers more"),
        ),
        (JOINED, replace(RULES, bounds={"worker": (2, 2), "server": (1, 1)}), None),
        (FULL, RULES, None),
        (cluster(node("a"), node("b"), node("four", 4.0, drained=True)), RULES, None),
        (cluster(node("a"), worker=["a"]), RULES, Change(3, None, "there is room: 1 worker more")),
        (cluster(node("a"), places={"worker-0": "a", "server-0": "a"}), RULES, None),
    ],
    ids=["room", "workers alone", "the most", "full", "drained", "kept", "never fewer"],
)
def test_a_run_gets_as_many_processes_as_there_is_room_for(view, rules, expected):
    assert settled(view, rules=rules) == expected


def test_one_change_at_a_time():
    busy = replace(RUN, may_grow=False)
    looks = [(0, JOINED, RUN), (10, JOINED, RUN), (10.5, JOINED, busy), (60, JOINED, busy)]
    first, *others = orders(*looks, (69, JOINED, RUN))[1:]
    assert isinstance(first, Change)
    assert others == [None] * 3


def test_what_had_no_room_is_asked_for_again_later_or_when_the_nodes_are_others():
    memory = replace(decide(RULES, Memory(), JOINED, RUN, 0)[0], failed_s=10.0)
    assert decide(RULES, memory, JOINED, RUN, 20)[1] is None
    assert isinstance(decide(RULES, memory, JOINED, RUN, 10 + RETRY_S)[1], Change)
    more = replace(JOINED, nodes=[*JOINED.nodes, node("five")])
    memory, order = decide(RULES, memory, more, RUN, 20)
    assert order is None
    assert isinstance(decide(RULES, memory, more, RUN, 30)[1], Change)


WIDE = RunView([f"worker-{n}" for n in range(4)], ["server-0", "server-1"])
ON_BOTH = {
    "worker-0": "a",
    "worker-1": "a",
    "server-0": "a",
    "worker-2": "b",
    "worker-3": "b",
    "server-1": "b",
}


@pytest.mark.parametrize(
    ("without", "rules", "numbers"),
    [
        (["worker-1"], RULES, (3, None)),
        (["worker-1", "worker-3"], RULES, (2, None)),
        (["worker-1", "server-0"], RULES, (3, 1)),
        (["worker-1", "worker-2", "worker-3"], RULES, None),  # the least is 2
        (["server-0", "server-1"], RULES, None),  # the least is 1
        (["server-0"], replace(RULES, bounds={"worker": (2, 8)}), None),
        (["worker-1"], replace(RULES, bounds={"server": (1, 3)}), None),
    ],
)
def test_a_run_begins_again_with_as_many_processes_as_have_a_place(without, rules, numbers):
    places = {name: on for name, on in ON_BOTH.items() if name not in without}
    now = cluster(node("a"), places=places)
    lost = replace(WIDE, may_grow=False, needs_places=True)
    assert settled(now, replace(lost, needs_places=False), rules) is None
    found = settled(now, lost, rules)
    assert (None if found is None else (found.workers, found.servers)) == numbers
    assert found is None or set(found.without) == set(without)
