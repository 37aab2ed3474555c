"""Reads the measurements of network and servers from the folder of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.calibration import Flags, Floats
from outpace.cluster.calibration.requests import Requests
from outpace.cluster.calibration.transits import Transits, transits_of
from outpace.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Measurements of network and servers of a run.

    Args:
        transits: Transits of messages that met no other message.
        requests: Pushes and pulls, with times in the clocks of their workers.
        is_push: Mask of the pushes among `requests`.
        offsets: How far each server's clock is ahead of each worker's, in s.
        give_s_per_byte: Seconds for each additional byte that a server needs to give an answer of
            the probe to the socket.
        make_s_per_byte: Seconds for each additional byte to make the answer and give it to the
            socket.
    """

    transits: Transits
    requests: Requests
    is_push: Flags
    offsets: Mapping[tuple[int, int], float]
    give_s_per_byte: float
    make_s_per_byte: float


def measured_in(folder: Path, rows: Requests, what: NDArray[np.str_]) -> Measured:
    """Return the measurements of a run with servers.

    Args:
        rows: Rows of `timing.parquet`.
        what: The kind of each row.

    Raises:
        ConfigError: if the run has no probe of the network.
    """
    probes = rows.where(what == "probe")
    is_request = (what == "push") | (what == "pull")
    if not len(probes):
        raise ConfigError(
            f"{folder}: it has no probe of the network, which tells latency and bandwidth apart; "
            "record a run without probe: false"
        )
    # Later iterations are recorded only in part, so the servers' work between them is unknown.
    is_request &= rows.iteration < _recorded_until(rows.where(what != "probe"))
    requests = rows.where(is_request)
    offsets = probes.offsets()
    return Measured(
        transits_of(probes.in_order().in_clocks_of_workers(offsets).with_answers_out()),
        requests.in_clocks_of_workers(offsets).with_answers_out(),
        (what == "push")[is_request],
        offsets,
        _s_per_byte(probes.answer_bytes, probes.answered_end - probes.answered),
        _s_per_byte(probes.answer_bytes, probes.answered_end - probes.answer_begun),
    )


def _s_per_byte(size_bytes: NDArray[np.int64], seconds: Floats) -> float:
    """Return the slope between the medians of the smallest and the largest messages."""
    known = ~np.isnan(seconds)
    sizes = np.unique(size_bytes[known])
    if len(sizes) < 2:
        return 0.0
    small, large = (float(np.median(seconds[known & (size_bytes == sizes[k])])) for k in (0, -1))
    return max(0.0, large - small) / float(sizes[-1] - sizes[0])


def _recorded_until(rows: Requests) -> int:
    """Return the first iteration that some worker did not record."""
    firsts = []
    for worker in np.unique(rows.worker):
        iterations = np.unique(rows.iteration[rows.worker == worker])
        gaps = np.flatnonzero(iterations != np.arange(len(iterations)))
        firsts.append(int(gaps[0]) if len(gaps) else len(iterations))
    return min(firsts)
