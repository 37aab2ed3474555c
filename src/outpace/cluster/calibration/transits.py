"""Transits of the probe with which a real run begins, and lines through them.

A probe is a message of one of several sizes to an idle server, and its answer. Its transit is
latency + bytes / bandwidth, to which the medians of the sizes are fitted (`fit_line`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
import scipy.optimize

from outpace.cluster.calibration import Flags, Floats, Ints
from outpace.cluster.calibration.requests import Requests

NOISE: Final = 0.05  # relative error of a median that is always assumed
_MEASURABLE: Final = 1e-7  # s; a shorter transit is none
_SHORTEST: Final = 1e-8  # s; a shorter latency is none
_FASTEST: Final = 1e12  # bytes/s; more is infinite


class Line(NamedTuple):
    """A transit of latency_s + bytes · s_per_byte."""

    latency_s: float
    s_per_byte: float

    def at(self, size_bytes: Floats) -> Floats:
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

    worker: Ints
    server: Ints
    to_server: Flags
    size_bytes: Floats
    seconds: Floats

    def where(self, chosen: Flags) -> Transits:
        """Return the chosen rows."""
        return Transits(*(getattr(self, entry.name)[chosen] for entry in fields(self)))

    @staticmethod
    def joined(parts: Sequence[Transits]) -> Transits:
        """Return the rows of all parts."""
        columns = [entry.name for entry in fields(Transits)]
        return Transits(*(np.concatenate([getattr(p, name) for p in parts]) for name in columns))


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


def line_through(sizes: Floats, seconds: Floats) -> Line:
    """Return the line through the durations of messages of these sizes, shape (n,) each."""
    low = float(seconds[sizes == sizes.min()].mean())
    high = float(np.median(seconds[sizes == sizes.max()]))
    start = max(low, 1e-7), max((high - low) / sizes.max(), 1e-13)
    line = fit_line(1, sizes, seconds, 1, start, least_slope=1e-15)
    return line if line.latency_s > _SHORTEST else Line(0.0, line.s_per_byte)


def fit_line(
    count: Ints | int,
    sizes: Floats | Ints,
    seconds: Floats,
    weight: Floats | int,
    start: tuple[float, float],
    *,
    least_slope: float,
) -> Line:
    """Return the line that describes these durations best.

    By least squares of the logarithms, so that relative errors count, with a loss (soft L1) that
    gives outliers little weight.

    Args:
        count: how often a duration has the latency.
        sizes: bytes in a duration.
        weight: of each duration.
        start: a latency and a slope to begin with.
        least_slope: seconds per byte.
    """

    def off(logs: Floats) -> Floats:
        latency, slope = np.exp(logs)
        return np.asarray(weight * np.log((count * latency + sizes * slope) / seconds))

    bounds = np.log([[1e-10, least_slope], [1e3, 1.0]])
    found = scipy.optimize.least_squares(
        off, np.clip(np.log(start), *bounds), bounds=bounds, loss="soft_l1", f_scale=NOISE
    )
    latency, slope = np.exp(found.x)
    return Line(float(latency), float(slope))


def rounded(value: float | None) -> float | None:
    """Return the value with four significant digits."""
    return None if value is None else float(f"{value:.4g}")
