"""The numbers of workers and servers that a cluster carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from outpace.real.elastic.view import SERVER, WORKER, ClusterView

Bounds: TypeAlias = tuple[int, int]  # the least and the most


class Aim(NamedTuple):
    """Numbers of workers and of servers."""

    workers: int
    servers: int


def path_of_aims(
    begin: Aim,
    bounds: Mapping[str, Bounds],
    each: Mapping[str, Mapping[str, float]],
    cluster: ClusterView,
) -> Sequence[Aim]:
    """Return the numbers from `begin` up to those that fill the cluster, each with one more.

    The next one is of the kind that lacks its least, or else has the smaller share of its most;
    servers before workers. Nodes that are drained have no room.

    Args:
        begin: the processes that have a place.
        bounds: the least and the most, by kind of role.
        each: the resources of a process, by kind of role and by name of the resource.
    """
    sound = [node for node in cluster.nodes if not node.is_drained]
    free = [dict(node.free) for node in sound]
    known = {node.id for node in sound}
    kept = {kind: sum(on in known for on in nodes) for kind, nodes in cluster.kept.items()}
    count = {WORKER: begin.workers, SERVER: begin.servers}
    path = [begin]
    while True:
        wanted = [kind for kind in (SERVER, WORKER) if count[kind] < bounds[kind][1]]
        wanted.sort(key=lambda kind: _urgency(count[kind], bounds[kind]))
        kind = next((kind for kind in wanted if _takes(each[kind], free, kept, kind)), None)
        if kind is None:
            return path
        count[kind] += 1
        path.append(Aim(count[WORKER], count[SERVER]))


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
