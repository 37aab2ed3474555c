"""What is known of a cluster and of a run on it, when it is decided whether the run changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

WORKER: Final = "worker"
SERVER: Final = "server"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a cluster.

    Attributes:
        id: is the node's alone. name: as people read it.
        free: the resources that nothing uses.
        is_drained: it is about to be removed, and takes nothing new.
    """

    id: str
    name: str
    free: Mapping[str, float] = field(default_factory=dict)
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The nodes of a cluster, and the places that a run has on them.

    Attributes:
        nodes: those that are alive.
        places: the node of each role of the run that has a place; by role, the node's id.
        kept: nodes with places that the run keeps for its next processes, by kind of role.
    """

    nodes: Sequence[Node]
    places: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunView:
    """The processes of a run.

    Attributes:
        workers: names of those that take part, or whose processes come back. In order of their
            numbers.
        absent: names of workers that were lost for good, whose numbers are kept.
        returning: names of those among `workers` whose processes come back.
        servers: names of the servers.
        is_busy: a change is under way, or a process comes back: another change would be refused.
    """

    workers: Sequence[str]
    servers: Sequence[str]
    absent: Sequence[str] = ()
    returning: Collection[str] = ()
    is_busy: bool = False

    @property
    def numbers(self) -> int:
        """The number of workers that was asked for last."""
        return len(self.workers) + len(self.absent)
