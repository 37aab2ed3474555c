"""Decides when a run gets more workers and servers, or fewer. Without IO.

First the places for processes are counted on the nodes that are not drained: the places that the
run's processes have, and the room for more. The room is divided between workers and servers one
after the other: a place goes to the kind of process that is below its lower bound, or else to the
kind that has the smaller share of its upper bound. The result is the *aim*: the numbers of workers
and servers that the cluster has places for.

- The run gets more processes if the aim is higher than the present numbers.
- It gets fewer only if lost processes have no place any more: then the run begins again with those
  that have one, if the lower bounds allow it.

With other numbers all processes of the run begin again from a checkpoint. The numbers never fall
because other programs use the cluster. So a process that has just joined is not removed again. The
run is asked for one change at a time, and only when all that is looked at has been the same for
`settle_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from outpace.support.words import plural

WORKER: Final = "worker"  # kinds of roles
SERVER: Final = "server"
RETRY_S: Final = 300.0  # before more processes are asked for again, after there was no room

Bounds: TypeAlias = tuple[int, int]  # the least and the most


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a cluster.

    Attributes:
        id: identifies the node. name: for messages; two nodes may have the same.
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
            A role without a place is missing.
        kept: ids of nodes on which the run has places reserved that no role uses, by kind of role.
            A node is there once for each place.
    """

    nodes: Sequence[Node]
    places: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunView:
    """The processes of a run.

    Attributes:
        workers: names of the workers that take part, or that are lost and come back.
        servers: names of the servers.
        may_grow: True unless a change is under way, a process comes back, or the run is about to
            end.
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
        bounds: of the number of processes of a kind; that of another kind stays as it is.
        each: the resources of a process, by kind of role and by name of the resource.
        settle_s: seconds for which all that is looked at must have been the same.
    """

    bounds: Mapping[str, Bounds]
    each: Mapping[str, Mapping[str, float]]
    settle_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """The run is to have other numbers of processes.

    Attributes:
        workers, servers: None: the number stays as it is.
        why: the reason, in words.
        without: the processes that have no place, so the numbers are lower.
    """

    workers: int | None
    servers: int | None
    why: str
    without: Sequence[str] = ()


class _Seen(NamedTuple):
    """What is known at one look; `aim`, `unplaced`: see the head of the file."""

    nodes: Sequence[str]
    run: RunView
    aim: Mapping[str, int]
    unplaced: Sequence[str]


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered from one look to the next.

    Attributes:
        seen: what was seen last. since_s: when it was seen first, or when the last change was
            decided if that was later.
        failed_s: when the run could not have what was asked for; None: the nodes have changed.
    """

    seen: _Seen | None = None
    since_s: float = 0.0
    failed_s: float | None = None


def decide(
    rules: Rules, memory: Memory, cluster: ClusterView, run: RunView, now_s: float
) -> tuple[Memory, Change | None]:
    """Return what to remember, and what to ask the run for; None: nothing."""
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
    """Return the number of processes of each kind that the cluster has places for."""
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
    """Take the place of one more process; False if there is none."""
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
    """Return the change to as many processes as the aim; None if it is not higher."""
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
    """Return the change to the processes that have a place; None if these are too few."""
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
