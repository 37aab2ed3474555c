"""The nodes of a cluster and the processes of a run there: the input of `deciding`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

WORKER: Final = "worker"
SERVER: Final = "server"


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
        is_busy: True if the run would refuse another change, because one is under way, a process
            comes back, or the run is about to end.
    """

    workers: Sequence[str]
    servers: Sequence[str]
    is_busy: bool = False
