"""The machines of a run, and the nodes on them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from outpace.sync.messages import SCHEDULER, server_name, worker_name


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of a run, numbered from 0: those of workers, servers, then the scheduler.

    With `colocate` server m is on the machine of worker m, and surplus workers or servers have
    machines of their own.
    """

    workers: int
    servers: int
    colocate: bool = False
    scheduler: bool = False

    @property
    def count(self) -> int:
        """Number of machines."""
        both = (self.workers, self.servers)
        return (max(both) if self.colocate else sum(both)) + self.scheduler

    def of_nodes(self) -> dict[str, int]:
        """Return the machine of each node by its name."""
        first = 0 if self.colocate else self.workers  # the machine of server 0
        workers = {worker_name(n): n for n in range(self.workers)}
        servers = {server_name(m): first + m for m in range(self.servers)}
        return workers | servers | ({SCHEDULER: self.count - 1} if self.scheduler else {})

    def nodes(self) -> dict[int, list[str]]:
        """Return the nodes of each machine, one or two."""
        found = defaultdict(list)
        for node, machine in self.of_nodes().items():
            found[machine].append(node)
        return dict(found)
