"""The tables of a run from which an explanation is made: by iteration, worker and server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from outpace.cluster.calibration.requests import Requests
from outpace.errors import ConfigError
from outpace.predict.recorded import too_short
from outpace.record.folder import (
    CONFIG,
    SUMMARY,
    TIMING,
    TRACE,
    read_config,
    read_summary,
    trait,
)
from outpace.record.reading import read_event, read_iterations
from outpace.record.tables import NONE
from outpace.record.timing import read_timing
from outpace.report.explaining.charging import Floats, Holds, Ints
from outpace.report.read.runs import kind_of, workers_in

LEAST: Final = 8  # least number of iterations
_JOINING: Final = ("worker", "iteration", "version", "end_ns")
_DIFFERENT: Final = 0.1  # share by which numbers of steps may differ, if a script ends by itself
_BLOCKING: Final = 0.1  # largest share of the time in all-reduces in which workers compute


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Times of a run in s since its start, shapes (T, N); NaN if there is none.

    Args:
        own: Run times without waiting. Without servers this includes the worker's work after the
            last result of the previous iteration, such as the step of its optimizer, or before a
            collective of its script, because the others wait for all of it.
        recorded: Number of iterations of the run.
        rounds: First iterations of the rounds at whose end workers wait for each other, shape (R,);
            None: workers do not wait.
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
    own: Floats
    recorded: int
    rounds: Ints | None

    @property
    def iteration_s(self) -> float:
        return float(np.nanmedian(self.ended - self.started))

    @property
    def too_short(self) -> str:
        """Why links of a real run cannot be judged; empty if they can be judged."""
        return too_short(self.time_s, self.iteration_s) if self.is_real else ""

    @property
    def ends_with_iterations(self) -> bool:
        """True if the run ended when every worker had done a predetermined number of iterations.

        A script that is not ended by `stop` decides how many steps it takes, however slow its
        worker is. The numbers of steps may differ a little (a worker with fewer samples). If they
        differ by more than a tenth, the workers are assumed to have ended after a given time.
        """
        stop = self.config.get("stop")
        stop = stop if isinstance(stop, Mapping) else {}
        given = [key for key, value in stop.items() if value is not None]
        if not given:
            steps = (~np.isnan(self.computed)).sum(axis=0)
            return bool(steps.min() >= (1 - _DIFFERENT) * steps.max())
        return "iterations" in given and not np.isnan(self.computed[-1]).any()

    @property
    def strategy(self) -> str:
        return kind_of(self.config.get("sync"))

    @property
    def has_cut_offs(self) -> bool:
        return "cut_offs" in self.summary

    def by_server(self, event: str, column: str) -> Floats:
        """Return a column of an event by server, iteration and worker, shape (M, T, N).

        Times are in s. NaN: there is no value.
        """
        rows = read_event(self.folder / TRACE, event, ("worker", "shard", "iteration", column))
        values = np.where(rows[column] == NONE, np.nan, rows[column])
        at = rows["shard"], rows["iteration"], rows["worker"]
        return self.placed(at, values * (1e-9 if column.endswith("_ns") else 1))

    def placed(self, at: Sequence[Ints], values: Floats) -> Floats:
        """Return the largest of the values at each place, shape (M, T, N); NaN: there is none.

        Args:
            at: Server, iteration and worker of each value. Places outside of the run are left out;
                a scheduler has a number after the servers.
        """
        found = np.full((self.servers, *self.started.shape), -np.inf)
        inside = ~np.isnan(values)
        for numbers, most in zip(at, found.shape, strict=True):
            inside &= (numbers >= 0) & (numbers < most)
        np.maximum.at(found, tuple(numbers[inside] for numbers in at), values[inside])
        return np.where(np.isfinite(found), found, np.nan)


def read_tables(folder: Path, most: int | None = None) -> Tables:
    """Return the tables of a run, with its first `most` iterations.

    Raises:
        ConfigError: with one line, if the folder is not the folder of a recorded run, or the run is
            too short.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder of a run")
    summary, config = read_summary(folder), read_config(folder)
    workers = workers_in(summary, config)
    if workers is None:
        raise ConfigError(f"{folder}: neither {SUMMARY} nor {CONFIG} says how many workers it had")
    path = folder / TRACE
    if not path.exists():
        status = summary.get("status", "not complete")
        raise ConfigError(
            f"{folder}: it has no {TRACE}, and its status is {status}: there are no run times to "
            "compare; choose a run that ended"
        )
    times = read_iterations(path, workers)
    count = len(times.started)
    if count < LEAST:
        raise ConfigError(
            f"{folder}: it has {count} iterations, and {LEAST} are needed to tell slow workers "
            "from others; record a longer run"
        )
    started, computed, ended, held = (table[:most] for table in times)
    is_real = "wall_time_s" in summary
    time_s = summary.get("wall_time_s" if is_real else "virtual_time_s")
    if not isinstance(time_s, int | float) or time_s <= 0:
        time_s = float(np.nanmax(ended))
    said = summary.get("servers")
    servers = len(said) if isinstance(said, list) else config.get("servers")
    servers = servers if type(servers) is int else 1
    own, rounds = computed - started, None
    if servers:
        rounds = np.arange(len(started)) if trait(summary, "lockstep") else None
    elif _wait_for_all(summary):
        own, rounds = _between_joinings(path, started, computed, ended)
    return Tables(
        folder,
        summary,
        config,
        is_real,
        float(time_s),
        workers,
        servers,
        started,
        computed,
        ended,
        np.nan_to_num(held),
        own,
        count,
        rounds,
    )


def _wait_for_all(summary: Mapping[str, Any]) -> bool:
    """Return whether workers without servers wait for each other in all-reduces."""
    overlap = summary.get("overlap_fraction")
    blocking = isinstance(overlap, int | float) and overlap < _BLOCKING
    return (blocking or trait(summary, "lockstep")) and not trait(summary, "exchanges")


def _between_joinings(
    path: Path, started: Floats, computed: Floats, ended: Floats
) -> tuple[Floats, Ints]:
    """Return each worker's own time before it joins the others, and the rounds.

    The others wait for a worker at an all-reduce, and at a collective of its script. If it works
    after the last result of an iteration, the others wait for this work in the next iteration.
    """
    shape = computed.shape
    last, joins = computed.copy(), np.zeros(len(computed), np.bool_)
    for event in ("all-reduce", "collective"):
        rows = read_event(path, event, _JOINING)
        inside = (rows["version"] >= 0) & (rows["end_ns"] != NONE)
        for name, most in zip(("iteration", "worker"), shape, strict=True):
            inside &= (rows[name] >= 0) & (rows[name] < most)
        at = rows["iteration"][inside], rows["worker"][inside]
        np.fmax.at(last, at, rows["end_ns"][inside] * 1e-9)
        joins[at[0]] = True
    own = computed - started
    own[1:] += np.maximum(np.nan_to_num(ended - last), 0.0)[:-1]
    (ends,) = np.nonzero(joins if joins.any() else ~joins)
    return own, np.concatenate([[0], ends[:-1] + 1])


@dataclass(frozen=True, slots=True, eq=False)
class RequestTimes:
    """Durations of requests to servers, in s.

    Args:
        under_way: Time of the request and its answer on the network, without the time at the
            server, by server, iteration and worker, shape (M, T, N); NaN: unknown. In a real run
            this includes the time in the socket of a server that is busy or stopped.
        handling_s: Mean time that each server needs for a request, shape (M,). None: the run did
            not record it.
    """

    under_way: Floats
    handling_s: Floats | None = None


def requests_of(tables: Tables) -> RequestTimes | None:
    """Return the durations of requests; None: the run did not record them.

    Real runs have them in timing.parquet. For simulated runs, the trace says when pushes arrived,
    and an answer is assumed to take as long as its push.
    """
    if not tables.is_real:
        there = tables.by_server("push", "start_ns") - tables.computed
        return RequestTimes(2 * np.where(there > 0, there, np.nan))
    if not (tables.folder / TIMING).exists():
        return None
    timing = read_timing(tables.folder)
    rows = Requests.of(timing.filter(pc.field("what").isin(["push", "pull"])))
    at = rows.server, rows.iteration, rows.worker
    under_way = rows.arrived - rows.sent - (rows.answered - rows.received)
    handling = tables.placed(at, rows.done - rows.begun + (rows.answered - rows.answer_begun))
    return RequestTimes(tables.placed(at, under_way), np.nanmean(handling, axis=(1, 2)))


def pulls_held(tables: Tables) -> Holds:
    """Return the holds that delayed a worker; the pull answered last in each iteration counts."""
    end, begin, by = (
        tables.by_server("pull", column) for column in ("end_ns", "start_ns", "released_by")
    )
    last = np.where(np.isnan(end), -np.inf, end).argmax(axis=0)[None]
    end, begin, by = (np.take_along_axis(table, last, axis=0)[0] for table in (end, begin, by))
    chosen = (by >= 0) & (end > begin)
    held = np.broadcast_to(np.arange(tables.workers), chosen.shape)[chosen]
    return Holds(held, by[chosen].astype(np.int64), end[chosen], (end - begin)[chosen])
