"""Estimates latency and bandwidth from the probe at the beginning of a real run.

At first all links count as alike. Then, one machine after the other, a machine gets a separate
latency and bandwidth if it is clearly slower and the fit is clearly better by Schwarz's criterion
for the logarithms of the medians. Most machines have one node.

No other message is sent during a probe, so nodes that share a machine change only one thing:
messages within a machine have a separate line, for its loopback interface.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from outpace.cluster.calibration import Flags, Floats
from outpace.cluster.calibration.transits import NOISE, Line, Transits, fit_line, rounded
from outpace.cluster.network import LinkLaw, NetworkLaw
from outpace.sync.messages import server_name, worker_name

_Machine: TypeAlias = tuple[str, ...]  # the nodes of a machine
# difference of Schwarz's criterion: "very strong" evidence (Kass, Raftery 1995)
_LEAST_GAIN: Final = 10.0
_LEAST_RANGE: Final = 4  # ratio of the largest size to the smallest
# least relative difference of a node's latency or bandwidth from the others
_LEAST_DIFFERENCE: Final = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class NetworkFit:
    """The law of the network.

    Args:
        law: Latency and bandwidth of all links.
        transits: Transits that the law was fitted to.
        fitted: Times of these transits according to the law, in s, shape (n,).
        to_server: The line of requests, for all links together.
        to_worker: The line of answers, for all links together.
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
        """Median of the relative errors of the fitted times."""
        return float(np.median(np.abs(self.fitted / self.transits.seconds - 1)))

    @property
    def testable(self) -> bool:
        """True if there are more transits than parameters: otherwise the law fits all of them."""
        return len(self.fitted) > self.parameters


def fit_network(
    transits: Transits,
    shared: Mapping[str, Sequence[str]] | None = None,
    *,
    alike: bool = False,
) -> NetworkFit:
    """Return the law that describes these transits best.

    Args:
        shared: The nodes of each machine with several nodes, by name of the machine. They are left
            out if messages between machines do not separate latency and bandwidth.
        alike: True to give no machine a separate line.

    Raises:
        ValueError: if all messages have about the same size, which does not separate latency and
            bandwidth.
    """
    machines = {name: tuple(nodes) for name, nodes in (shared or {}).items()}
    is_local = _within(transits, machines.values())
    if not _has_sizes(transits.where(~is_local)):
        machines, is_local = {}, np.zeros_like(is_local)
    local, transits = transits.where(is_local), transits.where(~is_local)
    if not _has_sizes(transits):
        raise ValueError("all messages are of about one size")
    best = _lines(transits, {})
    touched = {} if alike else _touched(transits, machines.values())
    while True:
        tried = [
            _lines(transits, {each: touched[each] for each in (*best.slow, machine)})
            for machine in touched
            if machine not in best.slow
        ]
        clear = [each for each in tried if each.last_is_slower]
        better = min(clear, key=lambda each: each.bic, default=best)
        if better.bic >= best.bic - _LEAST_GAIN:
            break
        best = better
    links = {
        name: LinkLaw(rounded(line.latency_s), rounded(line.bandwidth))
        for machine, line in sorted(best.slow.items())
        for name in machine
    }
    usual, fitted, loopback = best.usual, best.fitted, LinkLaw()
    parameters = 2 + 2 * len(best.slow)
    there, back = (transits.where(transits.to_server == way) for way in (True, False))
    lines = fit_line(there.size_bytes, there.seconds), fit_line(back.size_bytes, back.seconds)
    if len(local.seconds):
        line = fit_line(local.size_bytes, local.seconds)
        loopback = LinkLaw(rounded(line.latency_s) or None, rounded(line.bandwidth))
        transits = Transits.joined([transits, local])
        fitted = np.concatenate([fitted, np.maximum(line.at(local.size_bytes), 1e-9)])
        parameters += 2
    law = NetworkLaw(rounded(usual.latency_s) or 0.0, rounded(usual.bandwidth), nodes=links)
    law = replace(law, machines=machines, loopback=loopback)
    return NetworkFit(law, transits, fitted, *lines, parameters)


def _has_sizes(transits: Transits) -> bool:
    """True if the sizes of the messages differ enough to fit a line."""
    sizes = transits.size_bytes
    return len(sizes) > 0 and bool(sizes.max() >= _LEAST_RANGE * max(sizes.min(), 1))


class _Lines(NamedTuple):
    """A line for most links, and the lines of slow machines."""

    usual: Line
    slow: dict[_Machine, Line]
    fitted: Floats
    bic: float

    @property
    def last_is_slower(self) -> bool:
        """True if the last machine with a separate line is clearly slower than the usual ones."""
        line, usual = list(self.slow.values())[-1], self.usual
        return (
            line.latency_s > _LEAST_DIFFERENCE * usual.latency_s
            or line.s_per_byte > _LEAST_DIFFERENCE * usual.s_per_byte
        )


def _lines(transits: Transits, touched: Mapping[_Machine, Flags]) -> _Lines:
    """Fit a line for each of these machines, and one for the others; the slower end counts.

    Args:
        touched: Which messages begin or end at the machine.
    """
    sizes, seconds = transits.size_bytes, transits.seconds
    rest = ~np.any([*touched.values(), np.zeros(len(sizes), np.bool_)], axis=0)
    rest = rest if rest.sum() > 1 else ~np.zeros(len(sizes), np.bool_)
    usual = fit_line(sizes[rest], seconds[rest])
    latency, slope = np.full(len(sizes), usual.latency_s), np.full(len(sizes), usual.s_per_byte)
    slow = {}
    for machine, mine in touched.items():
        line = Line(*np.maximum(fit_line(sizes[mine], seconds[mine]), usual).tolist())
        slow[machine] = line
        latency[mine] = np.maximum(latency[mine], line.latency_s)
        slope[mine] = np.maximum(slope[mine], line.s_per_byte)
    fitted = np.maximum(latency + slope * sizes, 1e-9)
    variance = float((np.log(fitted / seconds) ** 2).mean()) + NOISE**2
    bic = len(sizes) * math.log(variance) + 2 * (1 + len(slow)) * math.log(len(sizes))
    return _Lines(usual, slow, fitted, bic)


def _touched(transits: Transits, shared: Iterable[_Machine]) -> dict[_Machine, Flags]:
    """Return the machines at the ends of these messages, and the messages of each machine."""
    machine_of = {node: machine for machine in shared for node in machine}
    found: dict[_Machine, Flags] = {}
    for ends in _ends(transits):
        for name in np.unique(ends).tolist():
            machine = machine_of.get(name, (name,))
            found[machine] = found.get(machine, False) | (ends == name)
    return found


def _within(transits: Transits, shared: Iterable[_Machine]) -> Flags:
    """Return which messages have both ends on one machine."""
    workers, servers = _ends(transits)
    found = np.zeros(len(workers), np.bool_)
    for machine in shared:
        found |= np.isin(workers, machine) & np.isin(servers, machine)
    return found


def _ends(transits: Transits) -> tuple[np.ndarray, np.ndarray]:
    """Return the names of the worker and of the server of each message."""
    return (
        np.array([worker_name(number) for number in transits.worker.tolist()], str),
        np.array([server_name(number) for number in transits.server.tolist()], str),
    )
