"""The tables of a run that an explanation is made from, by iteration and worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.record.folder import CONFIG, SUMMARY, TIMING, TRACE, read_config, read_summary
from outpace.record.reading import Columns, read_event, reading
from outpace.record.timing import read_timing
from outpace.record.trace import NONE
from outpace.record.traits import has_cut_offs, has_exchanges, is_lockstep
from outpace.report.explaining.joinings import Joinings, joinings_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST: Final = 8  # iterations
_MOST_WORKERS: Final = 1_000_000
_TIMES: Final = ("start_ns", "computed_ns", "end_ns", "held_ns", "shard")
_ITERATION: Final = ("worker", "iteration", *_TIMES)
_DIFFERENT: Final = 0.1  # of the steps of a script, among workers that end by themselves
_BLOCKING: Final = 0.1  # most of the time in all-reduces in which workers compute


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Times of a run in s since its start, shapes (T, N); NaN where there is none.

    Args:
        waits: `barrier`: workers wait for each other in every iteration, or every few ones;
            `holds`: servers hold pulls, or a worker waits for an all-reduce that others join late.
        joinings: Where workers without servers wait for each other; None: elsewhere.
    """

    folder: Path
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    is_real: bool
    time_s: float
    workers: int
    servers: int
    started: Floats
    computed: Floats
    ended: Floats
    held: Floats
    shard: Ints  # that answered last; -1 where there is none
    recorded: int  # iterations of the run
    barrier: bool
    joinings: Joinings | None
    notes: tuple[str, ...]

    @property
    def seconds(self) -> Floats:
        """Run times without waiting, of whole computations.

        What a worker does after the last result of an iteration belongs to the next one: there the
        others wait for it.
        """
        found = self.computed - self.started
        if self.joinings is not None:
            found[1:] += self.joinings.after(self.computed, self.ended)[:-1]
        return np.asarray(found)

    @property
    def ends_with_iterations(self) -> bool:
        """True if the run ended when every worker had done a number of iterations known before.

        A script that no `stop` ends takes the steps that it wants, however slow its worker is. The
        numbers of steps may differ a little (a worker with fewer samples); where they differ by
        more than a tenth, the workers are taken to have ended after a given time.
        """
        stop = self.config.get("stop")
        given = (
            [key for key, value in stop.items() if value is not None]
            if isinstance(stop, Mapping)
            else []
        )
        if not given:
            steps = (~np.isnan(self.computed)).sum(axis=0)
            return bool(steps.min() >= (1 - _DIFFERENT) * steps.max())
        return "iterations" in given and not np.isnan(self.computed[-1]).any()

    @property
    def strategy(self) -> str:
        return _kind(self.config)

    @property
    def has_cut_offs(self) -> bool:
        return has_cut_offs(self.config, self.summary)

    def timing(self) -> pa.Table | None:
        """Return the times of the messages of a real run; None if they are missing."""
        if not self.is_real or not (self.folder / TIMING).exists():
            return None
        return read_timing(self.folder)

    def matrix(self, event: str, column: str) -> tuple[Floats, Ints]:
        """Return a time of an event (s) by server, iteration and worker, shape (M, T, N).

        Also the numbers in `released_by`, -1 where there is none.
        """
        names = ("worker", "shard", "iteration", column, "released_by")
        rows = read_event(self.folder / TRACE, event, names)
        shape = (self.servers, *self.started.shape)
        found, by = np.full(shape, np.nan), np.full(shape, -1, np.int64)
        inside = np.ones(len(rows["shard"]), bool)
        # A scheduler comes after the servers.
        for name, most in zip(("shard", "iteration", "worker"), shape, strict=True):
            inside &= (rows[name] >= 0) & (rows[name] < most)
        at = rows["shard"][inside], rows["iteration"][inside], rows["worker"][inside]
        times = rows[column][inside]
        found[at] = np.where(times == NONE, np.nan, times * 1e-9)
        by[at] = np.where(rows["released_by"][inside] == NONE, -1, rows["released_by"][inside])
        return found, by


def read_tables(folder: Path, most: int | None = None) -> Tables:
    """Return the tables of a run, of the first `most` iterations.

    Raises:
        ConfigError: with one line, if the folder is not that of a run that has been recorded, or
            the run is too short.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder of a run")
    summary, config = read_summary(folder), read_config(folder)
    counts = summary.get("iterations")
    workers = len(counts) if isinstance(counts, list) else config.get("workers")
    if type(workers) is not int or not 0 < workers <= _MOST_WORKERS:
        raise ConfigError(f"{folder}: neither {SUMMARY} nor {CONFIG} says how many workers it had")
    path = folder / TRACE
    if not path.exists():
        status = summary.get("status", "not complete")
        raise ConfigError(
            f"{folder}: it has no {TRACE}, and its status is {status}: there are no run times to "
            "compare; choose a run that ended"
        )
    rows = read_event(path, "iteration", _ITERATION)
    with reading(path):
        found = _by_iteration(rows, workers)
    count = len(found["start_ns"])
    if count < LEAST:
        raise ConfigError(
            f"{folder}: it has {count} iterations, and {LEAST} are needed to tell slow workers "
            "from others; record a longer run"
        )
    if most is not None:
        found = {name: table[:most] for name, table in found.items()}
    is_real = "wall_time_s" in summary
    time_s = summary.get("wall_time_s" if is_real else "virtual_time_s")
    if not isinstance(time_s, int | float) or time_s <= 0:
        time_s = float(np.nanmax(found["end_ns"]))
    said = summary.get("servers")
    servers = len(said) if isinstance(said, list) else config.get("servers")
    servers = servers if type(servers) is int else 1
    barrier, joinings, notes = _waits(folder, summary, config, servers, found["computed_ns"])
    return Tables(
        folder,
        summary,
        config,
        is_real,
        float(time_s),
        workers,
        servers,
        found["start_ns"],
        found["computed_ns"],
        found["end_ns"],
        np.nan_to_num(found["held_ns"]),
        np.rint(np.nan_to_num(found["shard"] * 1e9, nan=-1)).astype(np.int64),
        count,
        barrier,
        joinings,
        notes,
    )


def _by_iteration(rows: Columns, workers: int) -> dict[str, Floats]:
    """Return each column as a table in s; ValueError if a number is out of range."""
    worker, iteration = rows["worker"], rows["iteration"]
    if len(worker) and (worker.min() < 0 or worker.max() >= workers or iteration.min() < 0):
        raise ValueError("it names a worker or an iteration that the run does not have")
    if rows["shard"].max(initial=0) >= 2**31:
        raise ValueError("it names a server that the run does not have")
    shape = int(iteration.max(initial=-1)) + 1, workers
    if shape[0] > 16 * (len(worker) + 1024):
        raise ValueError("an iteration in it has a number that is too large")
    if rows["start_ns"].min(initial=0) < 0:
        raise ValueError("an iteration in it has no start")
    found = {}
    for name in _ITERATION[2:]:
        table = np.full(shape, np.nan)
        table[iteration, worker] = np.where(rows[name] == NONE, np.nan, rows[name] * 1e-9)
        found[name] = table
    start, computed, end = (found[name] for name in _TIMES[:3])
    if (computed < start).any() or (end < computed).any():
        raise ValueError("an iteration in it ends before it begins")
    return found


def _kind(config: Mapping[str, Any]) -> str:
    sync = config.get("sync")
    parts = sync if isinstance(sync, list) else [sync]
    kinds = [str(part.get("kind")) for part in parts if isinstance(part, Mapping)]
    return " + ".join(dict.fromkeys(kinds))


def _waits(
    folder: Path,
    summary: Mapping[str, Any],
    config: Mapping[str, Any],
    servers: int,
    computed: Floats,
) -> tuple[bool, Joinings | None, tuple[str, ...]]:
    """Return whether there are barriers, where workers join them, and notes."""
    if servers:
        return is_lockstep(config, summary), None, ()
    overlap = summary.get("overlap_fraction")
    blocking = isinstance(overlap, int | float) and overlap < _BLOCKING
    if not (blocking or is_lockstep(config, summary)) or has_exchanges(config, summary):
        return False, None, ("workers continue while they average: a slow one costs its own time",)
    return True, joinings_of(folder / TRACE, computed), ()
