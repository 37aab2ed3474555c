"""Reads the all-reduces of a real run without servers, and the run times of its workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.all_reduces import AllReduceTimes
from outpace.errors import ConfigError
from outpace.record.reading import Columns, read_event
from outpace.record.trace import NONE

_NAMES = ("worker", "iteration", "start_ns", "computed_ns", "end_ns")


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    """Workers' parts in all-reduces; times in s, each in its worker's clock."""

    worker: NDArray[np.int64]
    iteration: NDArray[np.int64]  # after which the worker joined
    size_bytes: Floats
    sent: Floats  # the worker joins
    done: Floats  # the sum is there
    arrived: Floats  # the training has the result


def all_reduces_of(
    folder: Path, trace: Path, timing: pa.Table, computed: Floats, ended: Floats
) -> tuple[AllReduceTimes, Floats]:
    """Return the all-reduces of a run, and how long each worker waited for them.

    Args:
        computed, ended: When each iteration had computed its gradient and when it ended, in s,
            shape (T, N); NaN where there is none.

    Returns:
        The times, and the seconds of each iteration, shape (T, N), in which the worker waited for
        the result of an all-reduce that it had joined, or for other workers.

    Raises:
        ConfigError: with one line, if the run has no probe or no all-reduces.
    """
    what = np.array(timing["what"].to_pylist())
    probe, joined = (_rows(timing, what == name) for name in ("probe", "all-reduce"))
    if not len(joined.worker):
        raise ConfigError(
            f"{folder}: it has neither requests to servers nor all-reduces; calibrate on a run of "
            "another strategy, such as bsp or ssgd"
        )
    if not len(probe.worker):
        raise ConfigError(
            f"{folder}: it has no probe of the network, which tells latency and bandwidth apart; "
            "record a run without probe: false"
        )
    begun = _begun(read_event(trace, "all-reduce", _NAMES), computed.shape)
    there = (joined.iteration >= 0) & (joined.iteration < len(computed))
    at = np.where(there, joined.iteration, 0), joined.worker
    is_awaited = there & (joined.arrived >= computed[at]) & (joined.arrived <= ended[at])
    finished = np.where(is_awaited, joined.arrived, joined.done)
    seconds = np.where(there, finished - begun[at], np.nan)
    known = seconds > 0  # False where NaN, and where the clocks differ by more
    waited = np.zeros_like(computed)
    waits = joined.arrived - np.maximum(joined.sent, computed[at])
    np.add.at(waited, (at[0][is_awaited], at[1][is_awaited]), waits[is_awaited])
    held = read_event(trace, "iteration", ("worker", "iteration", "held_ns"))
    at = held["iteration"], held["worker"]
    waited[at] = np.maximum(waited[at], held["held_ns"] * 1e-9)
    times = AllReduceTimes(*_probed(probe), joined.size_bytes[known], seconds[known])
    if not len(times.seconds):
        raise ConfigError(
            f"{folder}: the clocks of its workers differ by more than its all-reduces took; "
            "synchronise the clocks of the machines, or record a run on one machine"
        )
    return times, waited


def _rows(timing: pa.Table, chosen: NDArray[np.bool_]) -> _Joined:
    def ints(name: str) -> NDArray[np.int64]:
        return np.asarray(timing[name].fill_null(-1).to_numpy()[chosen], np.int64)

    def seconds(name: str) -> Floats:
        column = timing[f"{name}_ns"].cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray(column[chosen] * 1e-9)

    size = ints("sent_bytes").astype(np.float64)
    times = (seconds(name) for name in ("sent", "done", "arrived"))
    return _Joined(ints("worker"), ints("iteration"), size, *times)


def _begun(rows: Columns, shape: tuple[int, ...]) -> Floats:
    """Return when all had joined the first all-reduce that a worker joined after an iteration.

    Shape (T, N), in s; NaN where there is none.
    """
    begun = np.full(shape, np.nan)
    there = (rows["iteration"] >= 0) & (rows["iteration"] < shape[0])
    there &= rows["computed_ns"] != NONE
    later_first = np.flatnonzero(there)[::-1]
    at = rows["iteration"][later_first], rows["worker"][later_first]
    begun[at] = rows["computed_ns"][later_first] * 1e-9
    return begun


def _probed(rows: _Joined) -> tuple[Floats, Floats]:
    """Return sizes and durations of the probe's all-reduces: the mean over their workers."""
    numbers, which = np.unique(rows.iteration, return_inverse=True)
    which = which.ravel()
    sizes, last = np.zeros(len(numbers)), np.full(len(numbers), -np.inf)
    np.maximum.at(sizes, which, rows.size_bytes)
    np.maximum.at(last, which, rows.sent)
    ends = np.bincount(which, rows.done) / np.bincount(which)
    durations = ends - last
    return sizes[durations > 0], durations[durations > 0]
