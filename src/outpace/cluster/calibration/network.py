"""Latency and bandwidth from the probe with which a real run begins.

A probe is a message of one of several sizes to an idle server, and its answer. Its transit is
latency + bytes / bandwidth. The medians of the sizes are fitted by least squares of the logarithms,
so that relative errors count, with a loss (soft L1) that gives outliers little weight.

First all links are alike. A node gets latency and bandwidth of its own where the fit is clearly
better, one node after the other; each pair gets them where that is better still. "Better" is
Schwarz's criterion of the logarithms of the medians.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from outpace.cluster.calibration.requests import Requests
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.sync.messages import server_name, worker_name

_NOISE: Final = 0.05  # relative error of a median that is always assumed
_LEAST_GAIN: Final = 10.0  # of Schwarz's criterion: "very strong" evidence (Kass, Raftery 1995)
_LEAST_DIFFERENCE: Final = 1.25  # of a node's latency or bandwidth from the others'
_MEASURABLE: Final = 1e-7  # s; a shorter transit is none
_SHORTEST: Final = 1e-8  # s; a shorter latency is none
_FASTEST: Final = 1e12  # bytes/s; more is infinite


class Line(NamedTuple):
    """A transit of latency_s + bytes · s_per_byte."""

    latency_s: float
    s_per_byte: float

    def at(self, size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.latency_s + size_bytes * self.s_per_byte

    @property
    def bandwidth(self) -> float | None:
        """Bytes/s; None: infinite."""
        return 1 / self.s_per_byte if self.s_per_byte > 1 / _FASTEST else None


@dataclass(frozen=True, slots=True, eq=False)
class Transits:
    """Median transits of messages of one size between two nodes, in one direction.

    Args:
        worker, server: Shape (n,).
        to_server: True: to the server; False: its answer.
        size_bytes, seconds: Shape (n,).
    """

    worker: NDArray[np.int64]
    server: NDArray[np.int64]
    to_server: NDArray[np.bool_]
    size_bytes: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def where(self, chosen: NDArray[np.bool_]) -> Transits:
        """Return the chosen rows."""
        return Transits(
            self.worker[chosen],
            self.server[chosen],
            self.to_server[chosen],
            self.size_bytes[chosen],
            self.seconds[chosen],
        )

    @staticmethod
    def joined(parts: Sequence[Transits]) -> Transits:
        """Return the rows of all parts."""
        columns = [entry.name for entry in fields(Transits)]
        return Transits(*(np.concatenate([getattr(p, name) for p in parts]) for name in columns))


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
    fitted: NDArray[np.float64]
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


def transits_of(probes: Requests) -> Transits:
    """Return the median transits of probes, in the order of time and with times on one clock.

    A small message may arrive before its sender has noted that it is out. Sizes whose median is
    shorter than 0.1 µs are left out, if the pair of processes has two others in this direction.
    """
    rows: list[tuple[int, int, bool, float, float]] = []
    there = probes.received - probes.sent
    back = probes.arrived - probes.answered_end
    for to_server, sizes, times in (
        (True, probes.sent_bytes, there),
        (False, probes.answer_bytes, back),
    ):
        known = ~np.isnan(times)
        keys = np.stack([probes.worker, probes.server, sizes], axis=1)[known]
        groups, which = np.unique(keys, axis=0, return_inverse=True)
        for place, (worker, server, size) in enumerate(groups):
            those = times[known][which.ravel() == place]
            if len(those) > 1:  # the first one finds cold caches and unused buffers
                those = those[1:]
            median = max(float(np.median(those)), _MEASURABLE)
            rows.append((int(worker), int(server), to_server, float(size), median))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    found = Transits(*columns)
    kept = found.seconds > _MEASURABLE
    ways = np.stack([found.worker, found.server, found.to_server], axis=1)
    for way in np.unique(ways, axis=0):
        mine = (ways == way).all(axis=1)
        if (mine & kept).sum() < 2:
            kept |= mine
    return found.where(kept)


def line_of(transits: Transits) -> Line:
    """Return the line through these transits; neither part is below 0."""
    return line_through(transits.size_bytes, transits.seconds)


def line_through(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> Line:
    """Return the line through the durations of messages of these sizes, shape (n,) each."""
    low = float(seconds[sizes == sizes.min()].mean())
    high = float(np.median(seconds[sizes == sizes.max()]))
    start = np.log([max(low, 1e-7), max((high - low) / sizes.max(), 1e-13)])

    def off(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        latency, slope = np.exp(logs)
        return np.asarray(np.log((latency + slope * sizes) / seconds))

    bounds = np.log([[1e-10, 1e-15], [1e3, 1.0]])
    found = scipy.optimize.least_squares(
        off, np.clip(start, *bounds), bounds=bounds, loss="soft_l1", f_scale=_NOISE
    )
    latency, slope = np.exp(found.x)
    return Line(float(latency) if latency > _SHORTEST else 0.0, float(slope))


def fit_network(transits: Transits) -> NetworkFit:
    """Return the law that describes these transits best.

    Raises:
        ValueError: all messages are of about one size, which tells latency and bandwidth not apart.
    """
    sizes = transits.size_bytes
    if sizes.max() < 4 * max(sizes.min(), 1):
        raise ValueError("all messages are of about one size")
    best = _Lines(transits, {})
    of_nodes = _with_nodes(best)
    pairs = _Pairs(transits)
    if pairs.bic < of_nodes.bic - _LEAST_GAIN:
        law, fitted, parameters = pairs.law(), pairs.fitted, pairs.parameters
    else:
        law, fitted, parameters = of_nodes.law(), of_nodes.fitted, of_nodes.parameters
    there, back = (
        line_of(transits.where(transits.to_server == direction)) for direction in (True, False)
    )
    return NetworkFit(law, transits, fitted, there, back, parameters)


def _bic(transits: Transits, fitted: NDArray[np.float64], parameters: int) -> float:
    """Return Schwarz's criterion of relative errors."""
    count = len(fitted)
    variance = float((np.log(fitted / transits.seconds) ** 2).mean()) + _NOISE**2
    return count * math.log(variance) + parameters * math.log(count)


class _Lines:
    """A line for most links, and one for each of some nodes; the slower of two ends counts."""

    def __init__(self, transits: Transits, nodes: dict[str, Line]) -> None:
        self.transits = transits
        self._touched = _touched(transits, nodes)
        rest = transits.where(~np.any([*self._touched.values(), self._none()], axis=0))
        self.usual = line_of(rest if len(rest.seconds) > 1 else transits)
        self.nodes = {
            name: line_of(transits.where(of_node)) for name, of_node in self._touched.items()
        }
        latency = np.full(len(transits.seconds), self.usual.latency_s)
        slope = np.full(len(transits.seconds), self.usual.s_per_byte)
        for name, of_node in self._touched.items():
            line = self.nodes[name]
            latency[of_node] = np.maximum(latency[of_node], line.latency_s)
            slope[of_node] = np.maximum(slope[of_node], line.s_per_byte)
        self.fitted = np.maximum(latency + slope * transits.size_bytes, 1e-9)
        self.parameters = 2 + 2 * len(nodes)
        self.bic = _bic(transits, self.fitted, self.parameters)

    def _none(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.transits.seconds), np.bool_)

    def with_node(self, name: str) -> _Lines:
        return _Lines(self.transits, {**self.nodes, name: self.usual})

    def differs(self, name: str) -> bool:
        """True if the node is clearly slower than the usual ones."""
        line, usual = self.nodes[name], self.usual
        return (
            line.latency_s > _LEAST_DIFFERENCE * usual.latency_s
            or line.s_per_byte > _LEAST_DIFFERENCE * usual.s_per_byte
        )

    def law(self) -> NetworkLaw:
        links = {}
        for name, line in sorted(self.nodes.items()):
            latency = max(line.latency_s, self.usual.latency_s)
            slope = Line(0, max(line.s_per_byte, self.usual.s_per_byte))
            links[name] = LinkLaw(rounded(latency), rounded(slope.bandwidth))
        return NetworkLaw(
            rounded(self.usual.latency_s) or 0.0, rounded(self.usual.bandwidth), nodes=links
        )


def _with_nodes(best: _Lines) -> _Lines:
    """Return the fit with lines of their own for nodes that are clearly slower."""
    names = _nodes(best.transits)
    while True:
        tried = [best.with_node(name) for name in names if name not in best.nodes]
        tried = [each for each in tried if each.differs(next(reversed(each.nodes)))]
        better = min(tried, key=lambda each: each.bic, default=best)
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


def _nodes(transits: Transits) -> list[str]:
    servers = sorted(set(transits.server.tolist()))
    workers = sorted(set(transits.worker.tolist()))
    return [*map(server_name, servers), *map(worker_name, workers)]


def _touched(transits: Transits, names: Iterable[str]) -> dict[str, NDArray[np.bool_]]:
    """Return which rows have each of these nodes at an end."""
    named: dict[str, Callable[[int], str]] = {"worker": worker_name, "server": server_name}
    found = {}
    for name in names:
        kind = name.partition("-")[0]
        column = transits.worker if kind == "worker" else transits.server
        found[name] = np.array([named[kind](number) == name for number in column.tolist()])
    return found


def rounded(value: float | None) -> float | None:
    """Return the value with four significant digits."""
    return None if value is None else float(f"{value:.4g}")
