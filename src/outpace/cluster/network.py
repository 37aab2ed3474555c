"""Latency and bandwidth of the simulated network, as configured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from typing import Literal

from outpace.cluster.delays import Delay
from outpace.cluster.machines import Machines
from outpace.cluster.matrix import Matrix
from outpace.errors import did_you_mean
from outpace.support.checks import Bandwidth, NotNegative, check_ranges, require
from outpace.sync.messages import SCHEDULER


@dataclass(frozen=True, slots=True)
class LinkLaw:
    """A node's connection, if it differs from the others.

    Args:
        latency_s: Latency in seconds.
        bandwidth_bytes_per_s: Bandwidth in each direction.
    """

    latency_s: NotNegative | None = None
    bandwidth_bytes_per_s: Bandwidth | None = None

    def __post_init__(self) -> None:
        check_ranges(self)

    def over(self, other: LinkLaw) -> LinkLaw:
        """Return this connection with the values of `other` for those that it does not have."""
        latency_s = other.latency_s if self.latency_s is None else self.latency_s
        bandwidth = self.bandwidth_bytes_per_s or other.bandwidth_bytes_per_s
        return LinkLaw(latency_s, bandwidth)


@dataclass(frozen=True, slots=True)
class PairLaw:
    """The path between two nodes, in both directions, if it differs from the others.

    Args:
        between: The names of the two nodes.
        latency_s: Replaces the latencies of the two ends.
        bandwidth_bytes_per_s: A limit in addition to the bandwidths of the two ends.
    """

    between: tuple[str, ...]
    latency_s: NotNegative | None = None
    bandwidth_bytes_per_s: Bandwidth | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        two = len(self.between) == 2 and len(set(self.between)) == 2
        require(two, "between", "two different nodes", list(self.between))


@dataclass(frozen=True, slots=True)
class AllReduceLaw(LinkLaw):
    """The cost of a round of an all-reduce, if it differs from the cost of a message.

    A round takes latency + bytes / bandwidth, with the bytes that a worker sends in it (Thakur,
    Rabenseifner, Gropp 2005, section 3).

    Args:
        latency_s: Seconds per round; None: the latency of the links.
        bandwidth_bytes_per_s: Bandwidth of a round; None: the bandwidth of the links.
    """


@dataclass(frozen=True, slots=True)
class NetworkLaw:
    """Latency and bandwidth of the connections.

    A message of m bytes arrives latency + m / bandwidth after it starts; the slower of its two ends
    counts. The latency between two nodes is given by `pairs`. Otherwise it is the larger latency of
    the two ends, and the latency of an end is given by `nodes`, else by `matrix`, else by
    `latency_s`.

    Args:
        latency_s: Latency in seconds.
        bandwidth_bytes_per_s: Bandwidth in each direction of a connection; by default infinite.
        contention: How transfers share a node. `serialised`: one transfer at a time occupies sender
            and receiver; `fair`: all transfers run at once and share the bandwidth (max-min).
        nodes: Connections of nodes that differ, by name (worker-3) or pattern (server-*). Names
            override patterns, and later patterns override earlier ones, key by key.
        pairs: Paths between pairs of nodes that differ; they override both ends.
        machines: Nodes that share a machine, by name of the machine. They share its connection in
            each direction. Every node that is not named has a machine for itself.
        loopback: Latency and bandwidth between two nodes of one machine, which do not use its
            connection; by default messages between them take no time.
        matrix: Latencies between machines, from a file, in place of `latency_s`.
        delays: Random delays of messages.
        all_reduce: Cost of a round of an all-reduce, for all workers alike; it replaces the
            settings of the links, and contention. None: the messages of an all-reduce are like all
            others.
        log: Save the times of the messages of workers and servers in messages.parquet.
        stretch: In real runs, make an all-reduce take at least the time that it would take on this
            network without other traffic.
    """

    latency_s: NotNegative = 0.0
    bandwidth_bytes_per_s: Bandwidth | None = None
    contention: Literal["serialised", "fair"] = "serialised"
    nodes: dict[str, LinkLaw] = field(default_factory=dict)
    pairs: tuple[PairLaw, ...] = ()
    machines: dict[str, tuple[str, ...]] = field(default_factory=dict)
    loopback: LinkLaw = field(default_factory=LinkLaw)
    matrix: Matrix | None = None
    delays: tuple[Delay, ...] = ()
    all_reduce: AllReduceLaw | None = None
    log: bool = False
    stretch: bool = False

    def __post_init__(self) -> None:
        check_ranges(self)
        alone = self.matrix is None or self.latency_s == 0
        require(alone, "latency_s", "left out, as the matrix has all latencies", self.latency_s)
        seen = set()
        for pair in self.pairs:
            ends = frozenset(pair.between)
            require(ends not in seen, "pairs", "all different", f"twice {_and(pair.between)}")
            seen.add(ends)
        _check_machines(self.machines)

    @property
    def places(self) -> dict[str, str]:
        """The machine of each node that `machines` names."""
        return {node: machine for machine, nodes in self.machines.items() for node in nodes}

    def own(self, node: str) -> LinkLaw:
        """Return the settings in `nodes` for a node."""
        found = LinkLaw()
        patterns = [
            link for key, link in self.nodes.items() if _is_pattern(key) and fnmatchcase(node, key)
        ]
        for link in (*patterns, self.nodes.get(node, found)):
            found = link.over(found)
        return found

    def require_machines(self, machines: Machines) -> None:
        """Raise ValueError if the law names unknown nodes or contradicts itself for a machine."""
        problems = list(self._unknown(machines))
        if machines.colocate and self.machines:
            problems.append(
                "network.machines: colocate says already where servers are: leave one of them out"
            )
        elif not problems and (machines.colocate or self.machines) and (self.nodes or self.pairs):
            problems = list(self._contradictions(machines))
        if problems:
            raise ValueError("\n".join(problems))

    def _unknown(self, machines: Machines) -> Iterator[str]:
        names = list(machines.of_nodes())
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
        for machine, nodes in self.machines.items():
            for node in nodes:
                if node not in known and not _may_be_absent(node, machines):
                    advice = did_you_mean(node, names)
                    yield f"network.machines.{machine}: no node {node!r}.{advice}"

    def _contradictions(self, machines: Machines) -> Iterator[str]:
        of_nodes = machines.of_nodes()
        why = "colocate" if machines.colocate else "network.machines"
        for pair in self.pairs:
            if len({of_nodes[end] for end in pair.between}) == 1:
                yield f"network.pairs: {_and(pair.between)} are one machine ({why})"
        for nodes in machines.nodes().values():
            for key in ("latency_s", "bandwidth_bytes_per_s"):
                said = {node: getattr(self.own(node), key) for node in nodes}
                said = {node: value for node, value in said.items() if value is not None}
                if len(set(said.values())) > 1:
                    yield (
                        f"network.nodes: {_and(list(said))} are one machine ({why}), so {key} "
                        f"cannot be {_and(list(said.values()))}"
                    )


def _check_machines(machines: Mapping[str, tuple[str, ...]]) -> None:
    place: dict[str, str] = {}
    for machine, nodes in machines.items():
        require(bool(nodes), f"machines.{machine}", "a list of one or more nodes", "empty")
        for node in nodes:
            if node in place:
                where = _and([place[node], machine])
                raise ValueError(
                    f"machines: {node} is named twice, on {where}: a node has one machine"
                )
            place[node] = machine


def _may_be_absent(node: str, machines: Machines) -> bool:
    """True if the strategy of the run decides whether there is such a node."""
    if node == SCHEDULER:
        return not machines.scheduler
    return not machines.servers and re.fullmatch(r"server-\d+", node) is not None


def _is_pattern(key: str) -> bool:
    return any(letter in key for letter in "*?[")


def _and(things: Sequence[object]) -> str:
    return " and ".join(map(str, things))
