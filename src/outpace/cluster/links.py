"""What the simulated network takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from outpace.checks import not_negative, require
from outpace.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Link:
    """One node's connection, where it differs from the rest."""

    latency_s: float | None = None
    bandwidth_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        _check_link(self.latency_s, self.bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class NetworkLaw:
    """Latency and bandwidth of the connections.

    A transfer of m bytes occupies sender and receiver for m / bandwidth and arrives
    latency later, by the slower of the two ends. `bandwidth_bytes_per_s` left out:
    infinite. `nodes` overrides single ones, by name: worker-3, server-0. `log` keeps
    every message's times (requested, started, delivered) in messages.parquet.
    """

    latency_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    contention: Literal["serialised"] = "serialised"
    nodes: dict[str, Link] = field(default_factory=dict)
    log: bool = False

    def __post_init__(self) -> None:
        _check_link(self.latency_s, self.bandwidth_bytes_per_s)

    def of(self, node: str) -> tuple[float, float]:
        """Latency (s) and bandwidth (bytes/s, perhaps infinite) of a node."""
        link = self.nodes.get(node, Link())
        latency_s = self.latency_s if link.latency_s is None else link.latency_s
        bandwidth = link.bandwidth_bytes_per_s or self.bandwidth_bytes_per_s or math.inf
        return latency_s, bandwidth

    def require_nodes(self, names: list[str]) -> None:
        """Raise ValueError if `nodes` names one that is not there."""
        for node in self.nodes:
            if node not in names:
                raise ValueError(f"network.nodes: no node {node!r}.{did_you_mean(node, names)}")


def _check_link(latency_s: float | None, bandwidth: float | None) -> None:
    if latency_s is not None:
        require(not_negative(latency_s), "latency_s", "a number from 0 to 1e9", latency_s)
    if bandwidth is not None:
        key, must = "bandwidth_bytes_per_s", "from 1 to 1e18; leave it out for infinite"
        require(1 <= bandwidth <= 1e18, key, must, bandwidth)
