"""Reads the all-reduces of a real run without servers, and how long its workers waited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.all_reduces import AllReduceTimes, Alone
from outpace.cluster.calibration.requests import Requests
from outpace.errors import ConfigError
from outpace.record.folder import TRACE
from outpace.record.reading import IterationTimes, read_event
from outpace.record.tables import NONE


def all_reduces_in(
    folder: Path, rows: Requests, what: NDArray[np.str_], times: IterationTimes
) -> tuple[AllReduceTimes, Floats]:
    """Return the all-reduces of a run, and how long each worker waited for them.

    Args:
        rows: Rows of `timing.parquet`: `sent` when a worker joins, `done` when the sum is complete,
            `arrived` when its training has the result, each by its worker's clock.
        what: The kind of each row.
        times: The times of the iterations, from the trace of the run.

    Returns:
        The times, and the seconds of each iteration, shape (T, N), in which the worker waited for
        the result of an all-reduce that it had joined, or for other workers.

    Raises:
        ConfigError: with one line, if the run has no probe or no all-reduces.
    """
    computed, ended = times.computed, times.ended
    probe, joined = rows.where(what == "probe"), rows.where(what == "all-reduce")
    if not len(joined):
        raise ConfigError(
            f"{folder}: it has neither requests to servers nor all-reduces; calibrate on a run of "
            "another strategy, such as bsp or ssgd"
        )
    if not len(probe):
        raise ConfigError(
            f"{folder}: it has no probe of the network, which tells latency and bandwidth apart; "
            "record a run without probe: false"
        )
    begun = _begun(folder, computed.shape)
    joined = joined.where((joined.iteration >= 0) & (joined.iteration < len(computed)))
    at = joined.iteration, joined.worker
    is_awaited = (joined.arrived >= computed[at]) & (joined.arrived <= ended[at])
    seconds = np.where(is_awaited, joined.arrived, joined.done) - begun[at]
    known = seconds > 0  # False for NaN, and if the clocks differ by more
    if not known.any():
        raise ConfigError(
            f"{folder}: the clocks of its workers differ by more than its all-reduces took; "
            "synchronise the clocks of the machines, or record a run on one machine"
        )
    waited = np.zeros_like(computed)
    waits = joined.arrived - np.maximum(joined.sent, computed[at])
    np.add.at(waited, (at[0][is_awaited], at[1][is_awaited]), waits[is_awaited])
    waited = np.fmax(waited, times.held)
    size_bytes, seconds = joined.sent_bytes[known].astype(np.float64), seconds[known]
    one = np.ones(1, np.int64)
    usual = Alone(one, np.median(size_bytes, keepdims=True), np.median(seconds, keepdims=True), one)
    return AllReduceTimes(Alone.joined([_probed(probe), usual]), size_bytes, seconds), waited


def _begun(folder: Path, shape: tuple[int, ...]) -> Floats:
    """Return when all had joined the first all-reduce that a worker joined after an iteration.

    The result has shape (T, N), in s; NaN if there is none.
    """
    rows = read_event(folder / TRACE, "all-reduce", ("worker", "iteration", "computed_ns"))
    begun = np.full(shape, np.nan)
    there = (rows["iteration"] >= 0) & (rows["iteration"] < shape[0])
    there &= rows["computed_ns"] != NONE
    later_first = np.flatnonzero(there)[::-1]
    at = rows["iteration"][later_first], rows["worker"][later_first]
    begun[at] = rows["computed_ns"][later_first] * 1e-9
    return begun


def _probed(rows: Requests) -> Alone:
    """Return the all-reduces of the probe, each with the mean over the workers."""
    times: dict[int, list[float]] = {}
    for number in np.unique(rows.iteration):
        mine = rows.where(rows.iteration == number)
        duration_s = float(mine.done.mean() - mine.sent.max())
        if duration_s > 0:
            times.setdefault(int(mine.sent_bytes.max()), []).append(duration_s)
    # The first all-reduce meets cold caches and new buffers.
    medians = [np.median(each[1:] if len(each) > 1 else each) for each in times.values()]
    ones = np.ones(len(times), np.int64)
    return Alone(ones, np.array(list(times), np.float64), np.array(medians), ones)
