"""Which machines there are, and which nodes run on them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from outpace.sync.messages import SCHEDULER, server_name, worker_name


@dataclass(frozen=True, slots=True)
class Machines:
    """Those of a run, numbered from 0: the workers', then the servers'.

    With `colocate` server m is on worker m's machine; surplus ones of either kind have
    machines of their own. So has the scheduler, if there is one: the last.
    """

    workers: int
    servers: int
    colocate: bool = False
    scheduler: bool = False

    @property
    def count(self) -> int:
        """How many there are."""
        both = (self.workers, self.servers)
        return (max(both) if self.colocate else sum(both)) + self.scheduler

    def of_nodes(self) -> dict[str, int]:
        """The machine of each node, by its name."""
        first = 0 if self.colocate else self.workers  # the machine of server 0
        workers = {worker_name(n): n for n in range(self.workers)}
        servers = {server_name(m): first + m for m in range(self.servers)}
        return workers | servers | ({SCHEDULER: self.count - 1} if self.scheduler else {})

    def nodes(self) -> dict[int, list[str]]:
        """The nodes of each machine: one or two."""
        found = defaultdict(list)
        for node, machine in self.of_nodes().items():
            found[machine].append(node)
        return dict(found)
