"""Latency and bandwidth from the probe with which a real run begins.

First all links are alike. A machine gets latency and bandwidth of its own where the fit is clearly
better, one machine after the other; each pair gets them where that is better still. "Better" is
Schwarz's criterion of the logarithms of the medians. Most machines have one node.

A probe travels alone, so machines that several nodes share change nothing but this: messages within
a machine have a line of their own, that of its loopback interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from outpace.cluster.calibration import Flags, Floats, Ints
from outpace.cluster.calibration.transits import NOISE, Line, Transits, line_of, rounded
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.sync.messages import server_name, worker_name

_Machine: TypeAlias = tuple[str, ...]  # its nodes
_LEAST_GAIN: Final = 10.0  # of Schwarz's criterion: "very strong" evidence (Kass, Raftery 1995)
_LEAST_RANGE: Final = 4  # of the sizes, the largest over the smallest
_LEAST_DIFFERENCE: Final = 1.25  # of a node's latency or bandwidth from the others'


@dataclass(frozen=True, slots=True, eq=False)
class NetworkFit:
    """The law of the network.

    Args:
        law: Latency and bandwidth of all links.
        transits: What it was fitted to.
        fitted: Their times by the law, in s, shape (n,).
        to_server: The line of requests, all links together.
        to_worker: The line of answers.
        parameters: Number of latencies and bandwidths of the law.
    """

    law: NetworkLaw
    transits: Transits
    fitted: Floats
    to_server: Line
    to_worker: Line
    parameters: int

    @property
    def error(self) -> float:
        """Median of the relative errors."""
        return float(np.median(np.abs(self.fitted / self.transits.seconds - 1)))

    @property
    def testable(self) -> bool:
        """True if there are more transits than parameters: otherwise the law meets all."""
        return len(self.fitted) > self.parameters


def fit_network(
    transits: Transits,
    shared: Mapping[str, Sequence[str]] | None = None,
    *,
    alike: bool = False,
) -> NetworkFit:
    """Return the law that describes these transits best.

    Args:
        shared: The nodes of machines with several, by the names of these machines.
        alike: True to give no machine and no pair of nodes a line of its own.

    Raises:
        ValueError: all messages are of about one size, which tells latency and bandwidth not apart.
    """
    machines = {name: tuple(nodes) for name, nodes in (shared or {}).items()}
    is_local = _within(transits, machines.values())
    local, transits = transits.where(is_local), transits.where(~is_local)
    if not _has_sizes(transits):
        raise ValueError("all messages are of about one size")
    of_nodes = _Lines(transits, machines.values(), [])
    if not alike:
        of_nodes = _with_machines(of_nodes)
    pairs = _Pairs(transits)
    if not alike and pairs.bic < of_nodes.bic - _LEAST_GAIN:
        law, fitted, parameters = pairs.law(), pairs.fitted, pairs.parameters
    else:
        law, fitted, parameters = of_nodes.law(), of_nodes.fitted, of_nodes.parameters
    there, back = (
        line_of(transits.where(transits.to_server == direction)) for direction in (True, False)
    )
    law = replace(law, machines=machines)
    if len(local.seconds):
        line = line_of(local)
        link = LinkLaw(rounded(line.latency_s) or None, rounded(line.bandwidth))
        law = replace(law, loopback=link)
        transits = Transits.joined([transits, local])
        fitted = np.concatenate([fitted, np.maximum(line.at(local.size_bytes), 1e-9)])
        parameters += 2
    return NetworkFit(law, transits, fitted, there, back, parameters)


def tells_links(transits: Transits, shared: Mapping[str, Sequence[str]]) -> bool:
    """True if messages between machines tell latency and bandwidth of these links apart.

    Args:
        shared: As for `fit_network`.
    """
    machines = [tuple(nodes) for nodes in shared.values()]
    return _has_sizes(transits.where(~_within(transits, machines)))


def _has_sizes(transits: Transits) -> bool:
    """True if there are messages of sizes that differ enough for a line."""
    sizes = transits.size_bytes
    return len(sizes) > 0 and bool(sizes.max() >= _LEAST_RANGE * max(sizes.min(), 1))


def _bic(transits: Transits, fitted: Floats, parameters: int) -> float:
    """Return Schwarz's criterion of relative errors."""
    count = len(fitted)
    variance = float((np.log(fitted / transits.seconds) ** 2).mean()) + NOISE**2
    return count * math.log(variance) + parameters * math.log(count)


class _Lines:
    """A line for most links, and one for each of some machines; the slower of two ends counts.

    Args:
        shared: The machines with several nodes.
        lines: The machines with a line of their own.
    """

    def __init__(
        self, transits: Transits, shared: Iterable[_Machine], lines: Iterable[_Machine]
    ) -> None:
        self.transits, self._shared = transits, list(shared)
        touched = {machine: _touched(transits, machine) for machine in lines}
        none = np.zeros(len(transits.seconds), np.bool_)
        rest = transits.where(~np.any([*touched.values(), none], axis=0))
        self.usual = line_of(rest if len(rest.seconds) > 1 else transits)
        self.lines = {machine: line_of(transits.where(mine)) for machine, mine in touched.items()}
        latency = np.full(len(transits.seconds), self.usual.latency_s)
        slope = np.full(len(transits.seconds), self.usual.s_per_byte)
        for machine, mine in touched.items():
            line = self.lines[machine]
            latency[mine] = np.maximum(latency[mine], line.latency_s)
            slope[mine] = np.maximum(slope[mine], line.s_per_byte)
        self.fitted = np.maximum(latency + slope * transits.size_bytes, 1e-9)
        self.parameters = 2 + 2 * len(self.lines)
        self.bic = _bic(transits, self.fitted, self.parameters)

    def with_others(self) -> list[_Lines]:
        """Return the fits in which one machine more has a line of its own, and is slower."""
        found = []
        for machine in _machines(self.transits, self._shared):
            if machine not in self.lines:
                tried = _Lines(self.transits, self._shared, [*self.lines, machine])
                if tried.differs(machine):
                    found.append(tried)
        return found

    def differs(self, machine: _Machine) -> bool:
        """True if the machine is clearly slower than the usual ones."""
        line, usual = self.lines[machine], self.usual
        return (
            line.latency_s > _LEAST_DIFFERENCE * usual.latency_s
            or line.s_per_byte > _LEAST_DIFFERENCE * usual.s_per_byte
        )

    def law(self) -> NetworkLaw:
        links = {}
        for machine, line in sorted(self.lines.items()):
            latency = max(line.latency_s, self.usual.latency_s)
            slope = Line(0, max(line.s_per_byte, self.usual.s_per_byte))
            for name in machine:
                links[name] = LinkLaw(rounded(latency), rounded(slope.bandwidth))
        return NetworkLaw(
            rounded(self.usual.latency_s) or 0.0, rounded(self.usual.bandwidth), nodes=links
        )


def _with_machines(best: _Lines) -> _Lines:
    """Return the fit with lines of their own for machines that are clearly slower."""
    while True:
        better = min(best.with_others(), key=lambda each: each.bic, default=best)
        if better.bic >= best.bic - _LEAST_GAIN:
            return best
        best = better


class _Pairs:
    """A line for each pair of a worker and a server."""

    def __init__(self, transits: Transits) -> None:
        self.fitted = np.empty(len(transits.seconds))
        self._lines: dict[tuple[int, int], Line] = {}
        for worker, server in zip(transits.worker.tolist(), transits.server.tolist(), strict=True):
            if (worker, server) not in self._lines:
                mine = (transits.worker == worker) & (transits.server == server)
                line = line_of(transits.where(mine))
                self.fitted[mine] = np.maximum(line.at(transits.size_bytes[mine]), 1e-9)
                self._lines[worker, server] = line
        self.parameters = 2 * len(self._lines)
        self.bic = _bic(transits, self.fitted, self.parameters)

    def law(self) -> NetworkLaw:
        """Return the law; `pairs` limit the bandwidth, so that of the ends is the largest."""
        lines = self._lines.values()
        latency_s = float(np.median([line.latency_s for line in lines]))
        pairs = tuple(
            PairLaw(
                (worker_name(worker), server_name(server)),
                rounded(line.latency_s),
                rounded(line.bandwidth),
            )
            for (worker, server), line in sorted(self._lines.items())
        )
        fastest = Line(0, min(line.s_per_byte for line in lines))
        return NetworkLaw(rounded(latency_s) or 0.0, rounded(fastest.bandwidth), pairs=pairs)


def _machines(transits: Transits, shared: Sequence[_Machine]) -> list[_Machine]:
    """Return the machines at the ends of these messages, those with servers first."""
    servers = sorted(set(transits.server.tolist()))
    workers = sorted(set(transits.worker.tolist()))
    machine_of = {node: machine for machine in shared for node in machine}
    names = [*map(server_name, servers), *map(worker_name, workers)]
    return list(dict.fromkeys(machine_of.get(name, (name,)) for name in names))


def _touched(transits: Transits, machine: _Machine) -> Flags:
    """Return which rows have a node of this machine at an end."""
    return _at(transits.worker, worker_name, machine) | _at(transits.server, server_name, machine)


def _within(transits: Transits, shared: Iterable[_Machine]) -> Flags:
    """Return which rows have both ends on one machine."""
    found = np.zeros(len(transits.seconds), np.bool_)
    for machine in shared:
        found |= _at(transits.worker, worker_name, machine) & _at(
            transits.server, server_name, machine
        )
    return found


def _at(numbers: Ints, name_of: Callable[[int], str], machine: _Machine) -> Flags:
    return np.array([name_of(number) in machine for number in numbers.tolist()], np.bool_)
