"""Decides when the number of workers or servers of a run changes. Does no input or output.

First the places for processes are counted on the nodes that are not drained: the places that the
run's processes have, and the room for more. The room is divided between workers and servers, one
place after the other. Each place is given to the kind of process that is below its lower bound,
otherwise to the kind that has the smaller share of its upper bound. The result is the *aim*: the
numbers of workers and servers that the cluster has places for.

- The run gets more processes if the aim is higher than the present numbers.
- It gets fewer only if lost processes have no place any more. Then the run begins again with the
  processes that have a place, if the lower bounds allow it.

When the numbers change, all processes of the run begin again from a checkpoint. Other programs on
the cluster never reduce the numbers, so a process that has just joined is not removed again. Only
one change is requested at a time, and only after nodes and run have not changed for `settle_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from outpace.support.words import plural

WORKER: Final = "worker"  # kinds of roles
SERVER: Final = "server"
RETRY_S: Final = 300.0  # seconds before more processes are requested again after there was no room

Bounds: TypeAlias = tuple[int, int]  # the smallest and the largest number


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a cluster.

    Attributes:
        id: identifies the node. name: name for messages; two nodes may have the same name.
        free: the resources that no program uses, by name.
        is_drained: True if the node is about to be removed, so no process is started on it.
    """

    id: str
    name: str
    free: Mapping[str, float] = field(default_factory=dict)
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The nodes of a cluster, and the places that a run has on them.

    Attributes:
        nodes: the nodes that are alive.
        places: the id of the node on which a role of the run has its place, by name of the role.
            Roles without a place are missing.
        kept: ids of nodes on which the run has reserved places that no role uses, by kind of role.
            A node occurs once for each such place.
    """

    nodes: Sequence[Node]
    places: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunView:
    """The processes of a run.

    Attributes:
        workers: names of the workers of the run, including lost workers that will be replaced.
        servers: names of the servers.
        may_grow: False while a change is in progress, while a process is being replaced, and when
            the run is about to end.
        needs_places: True if the run waits for processes that are to be started again.
    """

    workers: Sequence[str]
    servers: Sequence[str]
    may_grow: bool = True
    needs_places: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one run.

    Attributes:
        bounds: lower and upper bound of the number of processes, by kind; the number of a kind
            without bounds does not change.
        each: the resources of a process, by kind of role and by name of the resource.
        settle_s: seconds for which nodes and run must not have changed before a request.
    """

    bounds: Mapping[str, Bounds]
    each: Mapping[str, Mapping[str, float]]
    settle_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """A request to run with other numbers of processes.

    Attributes:
        workers, servers: the new numbers; None: the number does not change.
        why: the reason, as text.
        without: the processes that have no place; if there are any, the numbers are lower.
    """

    workers: int | None
    servers: int | None
    why: str
    without: Sequence[str] = ()


class _Seen(NamedTuple):
    """The state of nodes and run at one observation. The head of the file explains `aim`."""

    nodes: Sequence[str]
    run: RunView
    aim: Mapping[str, int]
    unplaced: Sequence[str]


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered from one observation to the next.

    Attributes:
        seen: the last observation. since_s: time of the first observation that was equal to it, or
            of the last change if that is later.
        failed_s: time when the run could not carry out a change; None: the nodes have changed
            since.
    """

    seen: _Seen | None = None
    since_s: float = 0.0
    failed_s: float | None = None


def decide(
    rules: Rules, memory: Memory, cluster: ClusterView, run: RunView, now_s: float
) -> tuple[Memory, Change | None]:
    """Return the new memory, and the request to the run; None: no request."""
    names = {SERVER: run.servers, WORKER: run.workers}
    unplaced = [n for of_kind in names.values() for n in of_kind if n not in cluster.places]
    nodes = [node.id for node in cluster.nodes if not node.is_drained]
    seen = _Seen(nodes, run, _aim(rules, cluster, names), unplaced)
    if seen != memory.seen:
        is_same = memory.seen is not None and nodes == memory.seen.nodes
        return Memory(seen, now_s, memory.failed_s if is_same else None), None
    if now_s - memory.since_s < rules.settle_s:
        return memory, None
    has_failed = memory.failed_s is not None and now_s - memory.failed_s < RETRY_S
    change = None
    if run.needs_places and unplaced:
        change = _fewer(rules, cluster, names, unplaced)
    elif run.may_grow and not has_failed:
        change = _more(names, seen.aim)
    return (memory if change is None else replace(memory, since_s=now_s)), change


def _aim(
    rules: Rules, cluster: ClusterView, names: Mapping[str, Sequence[str]]
) -> Mapping[str, int]:
    """Return the aim: the numbers of processes of each kind that have room on the cluster."""
    sound = [node for node in cluster.nodes if not node.is_drained]
    known, free = {node.id for node in sound}, [dict(node.free) for node in sound]
    kept = {kind: sum(on in known for on in nodes) for kind, nodes in cluster.kept.items()}
    bounds = {kind: rules.bounds.get(kind, (len(names[kind]),) * 2) for kind in names}
    count = {kind: sum(name in cluster.places for name in names[kind]) for kind in names}

    def urgency(kind: str) -> tuple[bool, float]:
        least, most = bounds[kind]
        return count[kind] >= least, count[kind] / most

    while True:
        wanted = sorted((kind for kind in names if count[kind] < bounds[kind][1]), key=urgency)
        kind = next((kind for kind in wanted if _takes(rules.each[kind], free, kept, kind)), None)
        if kind is None:
            return count
        count[kind] += 1


def _takes(
    needed: Mapping[str, float], free: Sequence[dict[str, float]], kept: dict[str, int], kind: str
) -> bool:
    """Use the place of one more process; False if there is none."""
    if kept.get(kind, 0) > 0:
        kept[kind] -= 1
        return True
    for node in free:
        if all(node.get(name, 0.0) >= much for name, much in needed.items()):
            for name, much in needed.items():
                node[name] -= much
            return True
    return False


def _more(names: Mapping[str, Sequence[str]], aim: Mapping[str, int]) -> Change | None:
    """Return the change that raises the numbers to the aim; None if the aim is not higher."""
    numbers = {kind: aim[kind] for kind in names if aim[kind] > len(names[kind])}
    if not numbers:
        return None
    more = [plural(n - len(names[kind]), kind) for kind, n in numbers.items()]
    why = f"there is room: {' and '.join(more)} more"
    return Change(numbers.get(WORKER), numbers.get(SERVER), why)


def _fewer(
    rules: Rules,
    cluster: ClusterView,
    names: Mapping[str, Sequence[str]],
    unplaced: Sequence[str],
) -> Change | None:
    """Return the change that keeps the processes with a place; None if these are too few."""
    numbers = {}
    for kind, of_kind in names.items():
        count = sum(name in cluster.places for name in of_kind)
        if count < len(of_kind):
            if kind not in rules.bounds or count < rules.bounds[kind][0]:
                return None
            numbers[kind] = count
    left = " and ".join(plural(n, kind) for kind, n in reversed(numbers.items()))
    why = f"there is no room for {', '.join(unplaced)}: the run begins again with {left}"
    return Change(numbers.get(WORKER), numbers.get(SERVER), why, unplaced)
