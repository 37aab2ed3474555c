"""Decides when a run gets more workers and servers, or fewer. Without IO.

First the places for processes are counted on the nodes that are not drained: the places that the
run's processes have, and the room for more. The room is divided between workers and servers one
after the other: a place goes to the kind of process that is below its lower bound, or else to the
kind that has the smaller share of its upper bound. The result is the *aim*: the numbers of workers
and servers that the cluster has places for.

- The run gets more processes if the aim is higher than the present numbers.
- It gets fewer only if lost processes have no place any more: then the run begins again with those
  that have one, if the lower bounds allow it (`fewer`).

With other numbers all processes of the run begin again from a checkpoint. The numbers never fall
because other programs use the cluster. So a process that has just joined is not removed again. The
run is asked for one change at a time, and only when nodes, places and numbers have been the same
for `settle_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from outpace.real.elastic.view import SERVER, WORKER, ClusterView, RunView
from outpace.support.words import plural
from outpace.sync.membership.events import TooFewPlaces

Bounds: TypeAlias = tuple[int, int]  # the least and the most

RETRY_S: Final = 300.0  # before more processes are asked for again, after there was no room


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one run.

    Attributes:
        workers, servers: the lower and the upper bound; None: their number stays as it is.
        each: the resources of a process, by kind of role and by name of the resource.
        settle_s: seconds for which nodes, places and numbers must have been the same.
    """

    workers: Bounds | None
    servers: Bounds | None
    each: Mapping[str, Mapping[str, float]]
    settle_s: float


@dataclass(frozen=True, slots=True)
class Scale:
    """The run is to have more workers or servers.

    Attributes:
        workers, servers: the numbers to ask for; None: the number stays as it is.
        why: the reason, in words.
    """

    workers: int | None
    servers: int | None
    why: str


class _Seen(NamedTuple):
    """The nodes and the processes of the run at one look.

    More processes are requested once all looks of `settle_s` seconds are equal.

    Attributes:
        nodes: the ids of the nodes that are not drained.
        run: the names of workers and servers.
        aim: how many of each there are places for.
    """

    nodes: Sequence[str]
    run: Sequence[str]
    aim: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered from one look to the next.

    Attributes:
        seen: what was seen last. since_s: when it was seen first, or when the last order was given
            if that was later.
        failed_s: when the run could not have what was asked for; None: since then it changed.
    """

    seen: _Seen | None = None
    since_s: float = 0.0
    failed_s: float | None = None


def decide(
    rules: Rules, memory: Memory, cluster: ClusterView, run: RunView, now_s: float
) -> tuple[Memory, Scale | None]:
    """Return what to remember, and what to ask the run for; None: nothing."""
    if run.is_busy:
        return replace(memory, since_s=now_s), None
    nodes = [node.id for node in cluster.nodes if not node.is_drained]
    seen = _Seen(nodes, (*run.workers, *run.servers), _aim(rules, cluster, run))
    if seen != memory.seen:
        is_same = memory.seen is not None and seen.nodes == memory.seen.nodes
        return Memory(seen, now_s, memory.failed_s if is_same else None), None
    if now_s - memory.since_s < rules.settle_s:
        return memory, None
    has_failed = memory.failed_s is not None and now_s - memory.failed_s < RETRY_S
    order = None if has_failed else _more(run, seen.aim)
    return (memory if order is None else replace(memory, since_s=now_s)), order


def _aim(rules: Rules, cluster: ClusterView, run: RunView) -> tuple[int, int]:
    """Return the numbers of workers and servers that the cluster has places for."""
    sound = [node for node in cluster.nodes if not node.is_drained]
    known = {node.id for node in sound}
    names = {SERVER: run.servers, WORKER: run.workers}
    bounds = {
        SERVER: rules.servers or (len(run.servers), len(run.servers)),
        WORKER: rules.workers or (len(run.workers), len(run.workers)),
    }
    count = {kind: sum(name in cluster.places for name in names[kind]) for kind in names}
    free = [dict(node.free) for node in sound]
    kept = {kind: sum(on in known for on in nodes) for kind, nodes in cluster.kept.items()}
    while True:
        wanted = [kind for kind in names if count[kind] < bounds[kind][1]]
        wanted.sort(key=lambda kind: _urgency(count[kind], bounds[kind]))
        kind = next((kind for kind in wanted if _takes(rules.each[kind], free, kept, kind)), None)
        if kind is None:
            return count[WORKER], count[SERVER]
        count[kind] += 1


def _urgency(count: int, bounds: Bounds) -> tuple[bool, float]:
    return count >= bounds[0], count / bounds[1]


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


def _more(run: RunView, aim: tuple[int, int]) -> Scale | None:
    """Return the order to have as many processes as the aim; None if it is not higher."""
    before = len(run.workers), len(run.servers)
    workers, servers = (max(0, aimed - now) for aimed, now in zip(aim, before, strict=True))
    if not workers and not servers:
        return None
    more = [plural(n, kind) for n, kind in ((servers, SERVER), (workers, WORKER)) if n]
    return Scale(
        before[0] + workers if workers else None,
        before[1] + servers if servers else None,
        f"there is room: {' and '.join(more)} more",
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """The processes without a place, and since when they are the same."""

    unplaced: Sequence[str] = ()
    since_s: float = 0.0


def seen(waiting: Waiting, cluster: ClusterView, names: Sequence[str], now_s: float) -> Waiting:
    """Return what to remember until the next look. names: all that need a place."""
    unplaced = [name for name in names if name not in cluster.places]
    return waiting if unplaced == waiting.unplaced else Waiting(unplaced, now_s)


def fewer(
    rules: Rules,
    waiting: Waiting,
    cluster: ClusterView,
    workers: Sequence[str],
    servers: Sequence[str],
) -> TooFewPlaces | None:
    """Return the event that the run has too few places; None: it waits for more.

    It waits if of one kind fewer than the least have a place.
    """
    placed: dict[str, int | None] = {WORKER: None, SERVER: None}
    for kind, names, bounds in (
        (WORKER, workers, rules.workers),
        (SERVER, servers, rules.servers),
    ):
        count = sum(name in cluster.places for name in names)
        if count == len(names):
            continue
        if bounds is None or count < bounds[0]:
            return None
        placed[kind] = count
    missing = ", ".join(waiting.unplaced)
    left = " and ".join(plural(n, kind) for kind, n in placed.items() if n is not None)
    return TooFewPlaces(
        f"there is no room for {missing}: the run begins again with {left}",
        placed[WORKER],
        placed[SERVER],
    )
