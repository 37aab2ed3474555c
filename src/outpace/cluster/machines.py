"""The machines of a run, and the nodes on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from outpace.sync.messages import SCHEDULER, server_name, worker_name


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of a run, numbered from 0 in the order of their first nodes.

    The order of nodes is: workers, servers, the scheduler.

    Args:
        workers, servers: Numbers of workers and servers.
        colocate: Server m is on the machine of worker m.
        scheduler: True if the run has one.
        shared: The nodes of each machine with several nodes, by name of the machine. Every other
            node that `colocate` does not place has a machine for itself. Names of nodes that the
            run does not have are ignored.
    """

    workers: int
    servers: int
    colocate: bool = False
    scheduler: bool = False
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of machines."""
        return len(set(self.of_nodes().values()))

    @property
    def share_workers(self) -> bool:
        """True if several workers are on one machine."""
        machine_of = self.of_nodes()
        return len({machine_of[worker_name(n)] for n in range(self.workers)}) < self.workers

    def of_nodes(self) -> dict[str, int]:
        """Return the machine of each node by its name."""
        names = [worker_name(n) for n in range(self.workers)]
        names += [server_name(m) for m in range(self.servers)]
        names += [SCHEDULER] if self.scheduler else []
        first = {node: nodes[0] for nodes in self.shared.values() for node in nodes}
        if self.colocate:
            for m in range(min(self.workers, self.servers)):
                first[server_name(m)] = worker_name(m)
        numbers: dict[str, int] = {}  # by the machine's first node
        return {name: numbers.setdefault(first.get(name, name), len(numbers)) for name in names}

    def nodes(self) -> dict[int, list[str]]:
        """Return the nodes of each machine."""
        found = defaultdict(list)
        for node, machine in self.of_nodes().items():
            found[machine].append(node)
        return dict(found)
