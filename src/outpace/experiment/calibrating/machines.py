"""The machines of recorded runs that several servers and workers shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from outpace.sync.messages import server_name, worker_name


class Placed(Protocol):
    """A run whose servers and workers were on these machines, by their names."""

    @property
    def nodes(self) -> Mapping[str, str]: ...

    @property
    def servers(self) -> int: ...


def nodes_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the machine of each node by `network.machines` of a configuration.

    Nodes that it does not name have one of their own. Empty if it names none.
    """
    network = config.get("network")
    machines = network.get("machines") if isinstance(network, Mapping) else None
    if not machines:
        return {}
    names = [worker_name(n) for n in range(config.get("workers", 0))]
    names += [server_name(m) for m in range(config.get("servers", 1))]
    named = {node: name for name, nodes in machines.items() for node in nodes}
    return {name: named.get(name, name) for name in names}


def machines_differ(nodes: Mapping[str, str], config: Mapping[str, Any]) -> bool:
    """True if a configuration names other machines than those that a run recorded."""
    named = nodes_of(config)
    both = sorted(nodes.keys() & named.keys())
    pairs = [(one, other) for one in both for other in both]
    return any((nodes[one] == nodes[other]) != (named[one] == named[other]) for one, other in pairs)


def shared_machines(runs: Sequence[Placed], notes: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes of machines with several, by the names of machines.

    Empty if all were on one machine: then there are no connections between machines. Also empty if
    the runs had their servers and workers on different machines, with a note.

    Args:
        notes: Gets a sentence about what was left out.
    """
    runs = [run for run in runs if run.servers] or list(runs)
    found = [_shared(run.nodes) for run in runs]
    if any(set(other.values()) != set(found[0].values()) for other in found[1:]):
        notes.append(
            "the runs had their processes on different machines, so that each has a connection of "
            "its own in the file: calibrate on one of them to have the machines of that run"
        )
        return {}
    return found[0]


def _shared(nodes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    if len(set(nodes.values())) < 2:
        return {}
    on: dict[str, list[str]] = {}
    for node in sorted(nodes, key=_order):
        on.setdefault(nodes[node], []).append(node)
    return {name: tuple(found) for name, found in on.items() if len(found) > 1}


def _order(node: str) -> tuple[bool, str, int]:
    """Workers come before servers, each in the order of their numbers."""
    kind, _, number = node.rpartition("-")
    return kind != "worker", kind, int(number) if number.isdigit() else 0
