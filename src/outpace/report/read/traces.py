"""Reads the trace of a run for a report: sums by worker, a span of time, interruptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.record.reading import Columns, Ints, Unreadable, read_rows, reading
from outpace.report.read.runs import Floats, Run, workers_in
from outpace.support.words import plural

_INTERRUPTION: Final = (
    "event",
    "worker",
    "shard",
    "start_ns",
    "end_ns",
    "held_ns",
    "version",
    "clock",
)
_TIMES: Final = ("start_ns", "computed_ns", "end_ns", "held_ns")
_EVENT: Final = pc.field("event")
_WAIT: Final = ["worker", "shard", "iteration"]  # the iteration to which a pull belongs


class Wait(NamedTuple):
    """A wait of a worker in an iteration: the last one before the iteration ended."""

    worker: int
    iteration: int
    held_ns: int
    end_ns: int  # time of the end of the iteration


@dataclass(frozen=True)
class Totals:
    """Sums over a whole trace; arrays are indexed by worker."""

    iterations: Ints
    compute_s: Floats
    communicate_s: Floats
    wait_s: Floats
    ended_s: Floats  # time that other workers waited for this worker's push, at any server
    longest: Wait | None
    closed: Columns  # iterations that a scheduler closed; clock: number of gradients that counted

    @property
    def mean_iteration_s(self) -> float:
        """Mean duration of an iteration in seconds."""
        total = self.compute_s.sum() + self.communicate_s.sum() + self.wait_s.sum()
        return float(total) / int(self.iterations.sum())


def totals_of(run: Run) -> Totals | None:
    """Return the sums over a run's trace; None if it has no iteration.

    Also returns None, and adds a line to `problems`, if the trace cannot be read or contradicts
    itself.
    """
    workers = workers_in(run.summary, run.config)
    try:
        with reading(run.trace):
            if workers is None:
                run.trace.stat()
                raise ValueError("no other file says how many workers there were")
            return read_totals(run.trace, workers)
    except Unreadable as error:
        run.problems.append(str(error))
        return None


def read_totals(path: Path, workers: int) -> Totals | None:
    """Return the sums over a trace, or None if it has no iteration.

    Args:
        workers: the number of workers of the run.

    Raises:
        Unreadable: if the file is missing or damaged.
        ValueError: if it names a worker that is not in the run, or contradicts itself.
    """
    rows = read_rows(path, ("worker", "iteration", *_TIMES), _EVENT == "iteration")
    require_order(rows)
    if not len(rows):
        return None
    worker, start, computed, end, held = (rows[name].to_numpy() for name in ("worker", *_TIMES))
    pulls = read_rows(path, ("start_ns", "end_ns", "released_by"), pc.field("released_by") >= 0)
    by, asked, answered = (pulls[n].to_numpy() for n in ("released_by", "start_ns", "end_ns"))
    if max(worker.max(), by.max(initial=0)) >= workers:
        raise ValueError(f"it names workers that are not among the {plural(workers, 'worker')}")
    at = int(held.argmax())
    wait = Wait(int(worker[at]), rows["iteration"][at].as_py(), int(held[at]), int(end[at]))
    closed = read_rows(path, ("start_ns", "end_ns", "clock"), _EVENT == "cut-off")
    require_order(closed)

    def sums_s(workers_of: Any, spans_ns: Any) -> Any:
        return np.bincount(workers_of, spans_ns, workers) * 1e-9  # integers (ns) add up exactly

    return Totals(
        np.bincount(worker, minlength=workers),
        sums_s(worker, computed - start),
        sums_s(worker, end - computed - held),
        sums_s(worker, held),
        sums_s(by, answered - asked),
        wait if wait.held_ns else None,
        {name: closed[name].to_numpy() for name in closed.column_names},
    )


def require_order(rows: pa.Table) -> None:
    """Raise ValueError if an iteration lacks a time, or ends before it begins."""
    spans = [rows["start_ns"], pc.subtract(rows["end_ns"], rows["start_ns"])]
    if "held_ns" in rows.column_names:
        computed = pc.subtract(rows["computed_ns"], rows["start_ns"])
        rest = pc.subtract(pc.subtract(rows["end_ns"], rows["computed_ns"]), rows["held_ns"])
        spans += [rows["held_ns"], computed, rest]
    if any(span.null_count or (pc.min(span).as_py() or 0) < 0 for span in spans):
        raise ValueError("an iteration in it lacks a time or ends before it begins")


def read_span(path: Path, low: int, high: int) -> tuple[pa.Table, pa.Table]:
    """Return the iterations in a span of time (ns), and the iterations closed in it.

    `is_cut_off` says of an iteration that the worker was stopped before it had a gradient.

    Raises:
        Unreadable: if the file is missing or damaged.
    """
    ends, starts = pc.field("end_ns"), pc.field("start_ns")
    # The wait of an iteration that overlaps with the span may be before the span.
    in_span = (ends > 2 * low - high) & (starts < high)
    iterations = read_iterations(path, in_span).filter(ends > low)
    closed = (_EVENT == "cut-off") & (ends > low) & (starts < high)
    closings = read_rows(path, ("end_ns", "clock"), closed)
    stops = set()
    if len(closings):  # else a push without a gradient replaces a gradient that was refused
        # The push that tells of an iteration's end may be after the span.
        stopped = (_EVENT == "push") & (pc.field("outcome") == "abstained")
        stopped &= (ends > low) & (starts < 2 * high - low)
        pushes = read_rows(path, ("worker", "iteration"), stopped)
        stops = set(zip(*(column.to_pylist() for column in pushes.columns), strict=True))
    keys = zip(*(iterations[key].to_pylist() for key in ("worker", "iteration")), strict=True)
    is_cut_off = pa.array([key in stops for key in keys], pa.bool_())
    return iterations.append_column("is_cut_off", is_cut_off), closings


def read_iterations(path: Path, chosen: pc.Expression | None = None) -> pa.Table:
    """Return the iterations of a trace in the order of their starts, each with its wait.

    The wait is from `since_ns` to `until_ns`, which are equal if there was none. `pull_ns` is the
    time when a push of the worker `released_by` ended the wait; null if no push ended it. If the
    server's clock differs, the wait keeps its length and is moved into the iteration. Without
    servers the wait comes before the communication.

    Args:
        path: path of the trace.
        chosen: condition for the rows of the trace; None: all rows.

    Raises:
        Unreadable: if the file is missing or damaged, or an iteration ends before it begins.
    """
    of_pulls = (_EVENT == "pull") & pc.field("released_by").is_valid()
    of_iterations = _EVENT == "iteration"
    if chosen is not None:
        of_pulls, of_iterations = of_pulls & chosen, of_iterations & chosen
    pulls = read_rows(path, (*_WAIT, "end_ns", "released_by"), of_pulls)
    # Only one row for each iteration, because processes that began again may have pulled twice.
    ended = pulls.group_by(_WAIT).aggregate([("end_ns", "max"), ("released_by", "max")])
    ended = ended.rename_columns([*_WAIT, "pull_ns", "released_by"])
    iterations = read_rows(path, (*_WAIT, *_TIMES), of_iterations)
    with reading(path):
        require_order(iterations)
    found = iterations.join(ended, _WAIT, join_type="left outer")
    found = found.sort_by([(name, "ascending") for name in ("start_ns", "worker", "iteration")])
    earliest = pc.add(found["computed_ns"], found["held_ns"])
    latest = pc.min_element_wise(found["pull_ns"], found["end_ns"])
    until = pc.max_element_wise(earliest, latest)
    until = pc.if_else(found["shard"].is_null(), earliest, until)
    found = found.append_column("since_ns", pc.subtract(until, found["held_ns"]))
    return found.append_column("until_ns", until)


class Interruption(NamedTuple):
    """The loss of a process.

    Attributes:
        who: the process, such as worker 2; empty: the run was ended and resumed.
        at_s: time of the run, in s.
        away_s: seconds until its successor began; None if it has none.
        repeated_s: seconds of the run whose work was repeated.
        checkpoint: checkpoint from which all processes began again; None if a worker was replaced
            alone.
        anew: number of scripts that then began from their start, because they keep no state.
    """

    who: str
    at_s: float
    away_s: float | None
    repeated_s: float
    checkpoint: int | None
    anew: int = 0


def interruptions(run: Run) -> list[Interruption]:
    """Return the interruptions of a run, in the order of time; [] if it had none."""
    known = (run.number("restarts"), run.number("updates_lost"), run.summary.get("resumed_from"))
    # Only the trace has the workers that were lost for good, and the faults of a simulation.
    if not (any(known) or run.real or run.number("faults", "worker_losses")):
        return []
    try:
        rows = read_rows(run.trace, _INTERRUPTION, _EVENT.isin(["restart", "loss"]))
    except Unreadable:
        return []  # another part of the report says that the trace cannot be read
    found = [_interruption(row) for row in rows.to_pylist()]
    return sorted(found, key=lambda each: each.at_s)


def _interruption(row: Mapping[str, Any]) -> Interruption:
    start_s, names = row["start_ns"] / 1e9, {"worker": row["worker"], "server": row["shard"]}
    who = [f"{kind} {number}" for kind, number in names.items() if number is not None]
    return Interruption(
        "".join(who[:1]),
        start_s,
        None if row["event"] == "loss" else row["end_ns"] / 1e9 - start_s,
        (row["held_ns"] or 0) / 1e9,
        row["version"],
        row["clock"] or 0,
    )
