"""What the simulated network takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from outpace.cluster.delays import Delay
from outpace.cluster.machines import Machines
from outpace.cluster.matrix import Matrix
from outpace.errors import ConfigError, did_you_mean
from outpace.support.checks import not_negative, require
from outpace.support.units import Time, nanoseconds


@dataclass(frozen=True, slots=True)
class LinkLaw:
    """One node's connection, where it differs from the rest."""

    latency_s: float | None = None
    bandwidth_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        _check_link(self.latency_s, self.bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class PairLaw:
    """The path between two nodes, in both directions, where it differs from the rest.

    Its latency is what it says; its bandwidth is a limit beside those of the two ends.
    """

    between: tuple[str, ...]
    latency_s: float | None = None
    bandwidth_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        two = len(self.between) == 2 and len(set(self.between)) == 2
        require(two, "between", "two different nodes", list(self.between))
        _check_link(self.latency_s, self.bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class NetworkLaw:
    """Latency and bandwidth of the connections.

    A message arrives latency after its m bytes went through; `bandwidth_bytes_per_s` left
    out: infinite. contention: what transfers that meet at a node do. `serialised`: one at a
    time occupies sender and receiver for m / bandwidth; `fair`: all go at once and share
    (max-min). Of the two ends of a transfer the slower counts. `nodes` overrides single
    ones by name (worker-3) or pattern (server-*); names win over patterns, and later
    patterns over earlier ones, key by key.

    Latency between two nodes: that of `pairs`; else the larger one of the two ends, which
    for each is what `nodes` says of it, else that of the `matrix`, or without one
    `latency_s`. `log` keeps every message's times (requested, started, delivered) in
    messages.parquet. For real there is another network: with `stretch` all-reduces take at least
    what they would take on this one, each by itself.
    """

    latency_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    contention: Literal["serialised", "fair"] = "serialised"
    nodes: dict[str, LinkLaw] = field(default_factory=dict)
    pairs: tuple[PairLaw, ...] = ()
    matrix: Matrix | None = None
    delays: tuple[Delay, ...] = ()
    log: bool = False
    stretch: bool = False

    def __post_init__(self) -> None:
        _check_link(self.latency_s, self.bandwidth_bytes_per_s)
        alone = self.matrix is None or self.latency_s == 0
        require(alone, "latency_s", "left out, as the matrix has all latencies", self.latency_s)
        seen = set()
        for pair in self.pairs:
            ends = frozenset(pair.between)
            require(ends not in seen, "pairs", "all different", f"twice {_and(pair.between)}")
            seen.add(ends)

    def absolute(self, folder: Path) -> NetworkLaw:
        """With its paths seen from `folder`."""
        return replace(self, matrix=self.matrix and self.matrix.absolute(folder))

    def own(self, node: str) -> LinkLaw:
        """What `nodes` says of a node."""
        found = LinkLaw()
        patterns = [link for key, link in self.nodes.items() if _matches(key, node)]
        for link in (*patterns, self.nodes.get(node, found)):
            found = _over(link, found)
        return found

    def of(self, node: str) -> tuple[float, float]:
        """Latency (s) and bandwidth (bytes/s, perhaps infinite) of a node, without the matrix."""
        link = self.own(node)
        latency_s = self.latency_s if link.latency_s is None else link.latency_s
        bandwidth = link.bandwidth_bytes_per_s or self.bandwidth_bytes_per_s or math.inf
        return latency_s, bandwidth

    def require_nodes(self, names: Sequence[str]) -> None:
        """Raise ValueError if it speaks of a node that is not there."""
        problems = list(self._unknown(names))
        if problems:
            raise ValueError("\n".join(problems))

    def require_machines(self, machines: Machines) -> None:
        """Raise ValueError if it does not fit the nodes that are there, or who shares with whom."""
        self.require_nodes(list(machines.of_nodes()))
        if machines.colocate and (self.nodes or self.pairs):
            problems = list(self._contradictions(machines))
            if problems:
                raise ValueError("\n".join(problems))

    def _unknown(self, names: Sequence[str]) -> Iterator[str]:
        known = set(names)
        mentioned = [
            *(("nodes", key) for key in self.nodes),
            *(("pairs.between", end) for pair in self.pairs for end in pair.between),
            *(("delays.nodes", key) for delay in self.delays for key in delay.nodes),
        ]
        for key, node in mentioned:
            if key != "pairs.between" and _is_pattern(node):
                if not matching(names, node):
                    yield f"network.{key}: no node matches {node!r}.{did_you_mean(node, names)}"
            elif node not in known:
                yield f"network.{key}: no node {node!r}.{did_you_mean(node, names)}"

    def _contradictions(self, machines: Machines) -> Iterator[str]:
        of_nodes = machines.of_nodes()
        for pair in self.pairs:
            if len({of_nodes[end] for end in pair.between}) == 1:
                yield f"network.pairs: {_and(pair.between)} are one machine (colocate)"
        for nodes in machines.nodes().values():
            for key in ("latency_s", "bandwidth_bytes_per_s"):
                values = [getattr(self.own(node), key) for node in nodes]
                if len({value for value in values if value is not None}) > 1:
                    yield (
                        f"network.nodes: {_and(nodes)} are one machine (colocate), so {key} "
                        f"cannot be {_and(values)}"
                    )


class Paths:
    """A law, and what it says of the nodes of one run; its files are read."""

    def __init__(self, law: NetworkLaw, machines: Machines | None = None) -> None:
        """Without `machines` each node is one. Raises ConfigError for a matrix that is wrong."""
        if machines is None and (law.matrix is not None or law.delays):
            raise ConfigError(
                "network.matrix and network.delays are for experiments, whose workers and servers "
                "are numbered; pairs and nodes name any node"
            )
        self._law = law
        self._own: dict[str, LinkLaw] = {}
        self._pairs = {frozenset(pair.between): pair for pair in law.pairs}
        # Most are, and there are as many pairs as workers times servers.
        self._alike = not (law.pairs or law.nodes or law.matrix)
        self._machine_of = {} if machines is None else machines.of_nodes()
        self._nodes_on = {} if machines is None else machines.nodes()
        self._matrix = (
            None if law.matrix is None or machines is None else law.matrix.latencies(machines.count)
        )

    def bandwidth(self, node: str) -> float:
        """Of the node's machine, in each direction; bytes/s, perhaps infinite."""
        own = self._machine(node).bandwidth_bytes_per_s
        return own or self._law.bandwidth_bytes_per_s or math.inf

    def latency(self, sender: str, receiver: str) -> Time:
        """From one node to another, in ns."""
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
        """The bandwidth between the two alone; bytes/s, perhaps infinite."""
        pair = self._pairs.get(frozenset((sender, receiver))) if self._pairs else None
        return (pair and pair.bandwidth_bytes_per_s) or math.inf

    def _machine(self, node: str) -> LinkLaw:
        """What `nodes` says of the node's machine."""
        if node not in self._own:
            found = LinkLaw()
            for name in self._nodes_on.get(self._machine_of.get(node, -1), [node]):
                found = _over(self._law.own(name), found)
            self._own[node] = found
        return self._own[node]


def _over(link: LinkLaw, other: LinkLaw) -> LinkLaw:
    """The one, and the other where it says nothing."""
    latency_s = other.latency_s if link.latency_s is None else link.latency_s
    return LinkLaw(latency_s, link.bandwidth_bytes_per_s or other.bandwidth_bytes_per_s)


def _is_pattern(key: str) -> bool:
    return any(letter in key for letter in "*?[")


def _matches(key: str, node: str) -> bool:
    return _is_pattern(key) and fnmatchcase(node, key)


def _and(things: Sequence[object]) -> str:
    return " and ".join(map(str, things))


def _check_link(latency_s: float | None, bandwidth: float | None) -> None:
    if latency_s is not None:
        require(not_negative(latency_s), "latency_s", "a number from 0 to 1e9", latency_s)
    if bandwidth is not None:
        key, must = "bandwidth_bytes_per_s", "from 1 to 1e18; leave it out for infinite"
        require(1 <= bandwidth <= 1e18, key, must, bandwidth)
