"""Transits of the probe at the beginning of a real run, and lines through durations.

A probe is a message of one of several sizes to an idle server, and its answer. Its transit takes
latency + bytes / bandwidth. This line is fitted to the medians of the sizes (`fit_line`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import scipy.optimize

from outpace.cluster.calibration import Flags, Floats, Ints, Rows
from outpace.cluster.calibration.requests import Requests

NOISE: Final = 0.05  # relative error of a median that is always assumed
_MEASURABLE: Final = 1e-7  # s; a shorter transit is left out
_SHORTEST: Final = 1e-8  # s; a shorter latency counts as 0
_FASTEST: Final = 1e12  # bytes/s; a larger bandwidth counts as infinite


class Line(NamedTuple):
    """A transit that takes latency_s + bytes · s_per_byte."""

    latency_s: float
    s_per_byte: float

    def at(self, size_bytes: Floats, count: Ints | int = 1) -> Floats:
        """Return the seconds for `count` messages with `size_bytes` bytes together."""
        return np.asarray(count * self.latency_s + size_bytes * self.s_per_byte)

    @property
    def bandwidth(self) -> float | None:
        """Bytes/s; None: infinite."""
        return 1 / self.s_per_byte if self.s_per_byte > 1 / _FASTEST else None


@dataclass(frozen=True, slots=True, eq=False)
class Transits(Rows):
    """Median transits of messages of one size between two nodes, in one direction.

    Args:
        worker, server: Numbers of the two nodes, shape (n,).
        to_server: True for messages to the server, False for its answers.
        size_bytes, seconds: Size and median transit, shape (n,).
    """

    worker: Ints
    server: Ints
    to_server: Flags
    size_bytes: Floats
    seconds: Floats


def transits_of(probes: Requests) -> Transits:
    """Return the median transits of probes, which are ordered by time and timed on one clock.

    A small message may arrive before its sender has noted the time of sending. So sizes with a
    median below 0.1 µs are left out if the pair of processes has two other sizes in this direction.
    """
    there = probes.sent_bytes, probes.received - probes.sent
    back = probes.answer_bytes, probes.arrived - probes.answered_end
    sizes, times = np.concatenate([there, back], axis=1)
    way = np.repeat([1.0, 0.0], len(probes))
    keys = np.stack([*np.tile([probes.worker, probes.server], 2), way, sizes], axis=1)
    known = ~np.isnan(times)
    groups, which = np.unique(keys[known], axis=0, return_inverse=True)
    medians = np.empty(len(groups))
    for place in range(len(groups)):
        mine = times[known][which.ravel() == place]
        # The first message meets cold caches and new buffers.
        medians[place] = max(float(np.median(mine[1:] if len(mine) > 1 else mine)), _MEASURABLE)
    worker, server, to_server, size_bytes = groups.T
    kept = medians > _MEASURABLE
    for pair in np.unique(groups[:, :3], axis=0):
        mine = (groups[:, :3] == pair).all(axis=1)
        if (mine & kept).sum() < 2:
            kept |= mine
    found = Transits(
        worker.astype(np.int64), server.astype(np.int64), to_server > 0, size_bytes, medians
    )
    return found.where(kept)


def fit_line(
    sizes: Floats | Ints, seconds: Floats, count: Ints | int = 1, weight: Floats | float = 1.0
) -> Line:
    """Return the line that describes these durations best; both parts are at least 0.

    The line is fitted to the logarithms, so that relative errors count, with a loss (soft L1) that
    gives outliers little weight.

    Args:
        sizes: Bytes in each duration, shape (n,).
        count: How many latencies each duration contains.
        weight: Weight of each duration.
    """
    each = sizes / count
    low = float((seconds / count)[each == each.min()].mean())
    high = float(np.median((seconds / count)[each == each.max()]))
    start = max(low, 1e-7), max((high - low) / each.max(), 1e-13)

    def off(logs: Floats) -> Floats:
        line = Line(*np.exp(logs))
        return np.asarray(weight * np.log(line.at(np.asarray(sizes), count) / seconds))

    bounds = np.log([[1e-10, 1e-16], [1e3, 1.0]])
    found = scipy.optimize.least_squares(
        off, np.clip(np.log(start), *bounds), bounds=bounds, loss="soft_l1", f_scale=NOISE
    )
    latency_s, slope = np.exp(found.x).tolist()
    return Line(latency_s if latency_s > _SHORTEST else 0.0, slope)


def rounded(value: float | None) -> float | None:
    """Return the value with four significant digits."""
    return None if value is None else float(f"{value:.4g}")
