"""The machines with several nodes that a cluster file describes, for the nodes of a run.

A worker that the file does not describe resembles one that it does, and is on another machine like
the machine of that worker. The second worker that resembles worker 3 is on the second machine of
this kind, with the second ones that resemble the other workers of the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outpace.sync.messages import server_name, worker_name


def are_machines(machines: Any) -> bool:
    """True if plain data are lists of nodes, each named once, by the names of machines."""
    if not isinstance(machines, Mapping):
        return False
    lists = list(machines.values())
    if not all(isinstance(nodes, list) and nodes for nodes in lists):
        return False
    names = [node for nodes in lists for node in nodes]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def machines_of_run(
    machines: Mapping[str, Sequence[str]], resembled: Sequence[int], servers: int
) -> dict[str, list[str]]:
    """Return the machines of a run and their nodes.

    Args:
        machines: Those of the file.
        resembled: For each worker of the run the worker of the file that it resembles.
        servers: Number of servers of the run.
    """
    place = {node: name for name, nodes in machines.items() for node in nodes}
    found: dict[tuple[str, int], list[str]] = {(name, 0): [] for name in machines}
    for node, like, copy in _nodes(resembled, servers):
        if like in place:
            found.setdefault((place[like], copy), []).append(node)
    for node, name in place.items():  # such as the scheduler
        if not node.rpartition("-")[2].isdigit():
            found[name, 0].append(node)
    names: dict[str, list[str]] = {}
    for (name, copy), nodes in found.items():
        if nodes:
            name = name if not copy else f"{name} ({copy + 1})"
            while name in names or (copy and name in machines):
                name += "'"
            names[name] = nodes
    return names


def _nodes(resembled: Sequence[int], servers: int) -> Iterator[tuple[str, str, int]]:
    """Yield each node of a run, the node of the file that it resembles, and how many did before."""
    before: Counter[int] = Counter()
    for worker, like in enumerate(resembled):
        yield worker_name(worker), worker_name(like), before[like]
        before[like] += 1
    for server in range(servers):
        yield server_name(server), server_name(server), 0
