"""Reads the measurements of network and servers from the folder of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outpace.cluster.calibration import Flags, Floats
from outpace.cluster.calibration.requests import Requests
from outpace.cluster.calibration.transits import Transits, transits_of
from outpace.errors import ConfigError
from outpace.record.folder import MESSAGES, read_table
from outpace.record.reading import reading


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Measurements of network and servers: of a real run, or from the log of a simulated one.

    Args:
        transits: Of messages that met no others.
        requests: Pushes and pulls, in the clocks of their workers; None for a simulated run.
        is_push: Mask of the pushes among `requests`.
        offsets: How far each server's clock is ahead of each worker's, in s.
        give_s_per_byte: Seconds that a server needs for each byte more of an answer to the probe,
            to give the answer to the socket.
        make_s_per_byte: The same, to make the answer and give it to the socket.
    """

    transits: Transits
    requests: Requests | None = None
    is_push: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    offsets: Mapping[tuple[int, int], float] = field(default_factory=dict)
    give_s_per_byte: float = 0.0
    make_s_per_byte: float = 0.0


def measured_in(folder: Path, rows: Requests, what: NDArray[np.str_]) -> Measured:
    """Return the measurements of a real run with servers.

    Args:
        rows: Of `timing.parquet`.
        what: The kind of each row.

    Raises:
        ConfigError: the run has no probe of the network.
    """
    probes = rows.where(what == "probe")
    is_request = (what == "push") | (what == "pull")
    if not len(probes):
        raise ConfigError(
            f"{folder}: it has no probe of the network, which tells latency and bandwidth apart; "
            "record a run without probe: false"
        )
    # Later iterations are recorded in parts, between which it is unknown what the servers did.
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


def requests_in(timing: pa.Table) -> Requests:
    """Return all rows of a table as `Requests`; rows of other kinds have NaN times."""
    columns = []
    for entry in fields(Requests):
        if entry.name in timing.column_names:
            column = timing[entry.name].fill_null(-1).to_numpy().astype(np.int64)
        else:
            name = f"{entry.name}_ns"
            column = timing[name].cast(pa.float64()).to_numpy(zero_copy_only=False) * 1e-9
        columns.append(column)
    return Requests(*columns)


def logged_in(folder: Path) -> Measured:
    """Return the exact transits of a simulated run that logged its messages.

    Raises:
        ConfigError: it logged no messages, or none to servers.
    """
    path = folder / MESSAGES
    if not path.exists():
        raise ConfigError(
            f"{folder}: it has no times of messages; simulate it with network.log=true, or record "
            "a real run"
        )
    rows: dict[tuple[int, int, bool, int], float] = {}
    with reading(path):
        names = ["kind", "sender", "receiver", "size_bytes", "started_ns", "delivered_ns"]
        columns = read_table(path).select(names).to_pydict()
        for kind, *ends, size, started, delivered in zip(*columns.values(), strict=True):
            there = kind in ("push", "pull")
            worker, server = ends if there else reversed(ends)
            known = worker.startswith("worker-") and server.startswith("server-")
            if known and (there or kind == "reply"):
                one, other = (int(name.rpartition("-")[2]) for name in (worker, server))
                rows.setdefault((one, other, there, size), (delivered - started) * 1e-9)
    if not rows:
        raise ConfigError(
            f"{folder}: it is simulated and has no messages to servers; calibrate on a run of "
            "a strategy with servers, such as bsp, or on a real run"
        )
    worker, server, to_server, size_bytes = (np.array(each) for each in zip(*rows, strict=True))
    seconds = np.maximum(np.array(list(rows.values())), 1e-9)
    return Measured(Transits(worker, server, to_server, size_bytes.astype(np.float64), seconds))
