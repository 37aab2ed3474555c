"""Latency and bandwidth between any two nodes of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from outpace.cluster.machines import Machines
from outpace.cluster.network import AllReduceLaw, LinkLaw, NetworkLaw
from outpace.errors import ConfigError
from outpace.support.units import Time, nanoseconds


class Paths:
    """Latency and bandwidth between the nodes of one run.

    Args:
        machines: Which nodes share a machine; None: as the law says.

    Attributes:
        loopback: Connection between two nodes of one machine; None: their messages take no time.

    Raises:
        ConfigError: if the file of the matrix is wrong, or the law needs `machines`.
    """

    def __init__(self, law: NetworkLaw, machines: Machines | None = None) -> None:
        if machines is None and (law.matrix is not None or law.delays):
            raise ConfigError(
                "network.matrix and network.delays are for experiments, whose workers and servers "
                "are numbered; pairs and nodes name any node"
            )
        self._law = law
        self.loopback = None if law.loopback == LinkLaw() else law.loopback
        self._own: dict[str, LinkLaw] = {}
        self._pairs = {frozenset(pair.between): pair for pair in law.pairs}
        # Checked first to save time, as there are workers times servers pairs.
        self._alike = not (law.pairs or law.nodes or law.matrix)
        # numbers of nodes, or names of nodes given by the user
        self._machine_of: Mapping[str, Any] = law.places
        self._nodes_on: Mapping[Any, Sequence[str]] = law.machines
        if machines is not None:
            self._machine_of, self._nodes_on = machines.of_nodes(), machines.nodes()
        self._matrix = (
            None if law.matrix is None or machines is None else law.matrix.latencies(machines.count)
        )

    @property
    def all_reduce(self) -> AllReduceLaw | None:
        """The cost of a round of an all-reduce, if it differs from the cost of a message."""
        return self._law.all_reduce

    def machine(self, node: str) -> int | str:
        """Return the node that represents the node's machine."""
        found: int | str = self._machine_of.get(node, node)
        return found

    def bandwidth(self, node: str) -> float:
        """Return the bandwidth of the node's machine in each direction, in bytes/s or infinite."""
        own = self._machine(node).bandwidth_bytes_per_s
        return own or self._law.bandwidth_bytes_per_s or math.inf

    def latency(self, sender: str, receiver: str) -> Time:
        """Return the latency in ns from a node to a node on another machine."""
        if self._alike:
            return nanoseconds(self._law.latency_s)
        pair = self._pairs.get(frozenset((sender, receiver)))
        if pair is not None and pair.latency_s is not None:
            return nanoseconds(pair.latency_s)
        usual = self._law.latency_s
        if self._matrix is not None:
            usual = float(self._matrix[self._machine_of[sender], self._machine_of[receiver]])
        ends = (self._machine(sender).latency_s, self._machine(receiver).latency_s)
        return nanoseconds(max(usual if own is None else own for own in ends))

    def limit(self, sender: str, receiver: str) -> float:
        """Return the bandwidth of the path alone, in bytes/s or infinite."""
        pair = self._pairs.get(frozenset((sender, receiver))) if self._pairs else None
        return (pair and pair.bandwidth_bytes_per_s) or math.inf

    def _machine(self, node: str) -> LinkLaw:
        """Return the settings in `nodes` for the node's machine."""
        if node not in self._own:
            found = LinkLaw()
            for name in self._nodes_on.get(self._machine_of.get(node, -1), [node]):
                found = self._law.own(name).over(found)
            self._own[node] = found
        return self._own[node]
