"""Sums over a whole trace, from one pass that keeps a few numbers per worker.

Only the rows of iterations that a scheduler closed are kept: one for all workers together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from outpace.record.reading import Columns, Ints, Unreadable, batches, columns_of, joined, reading
from outpace.record.trace import NONE
from outpace.report.read.runs import Run
from outpace.support.words import plural

Floats = NDArray[np.float64]

STEPS: Final = 200  # number of equal parts of the run in `TraceTotals.finished`
_GROUPS: Final = 1024  # maximum, of closed iterations
_MOST_WORKERS: Final = 1_000_000
_ITERATION: Final = (*("worker", "iteration", "start_ns", "computed_ns", "end_ns", "held_ns"),)
_PULL: Final = ("start_ns", "end_ns", "released_by")
_CLOSED: Final = ("iteration", "start_ns", "end_ns", "clock")


@dataclass(frozen=True)
class LongestWait:
    """The longest wait of a worker in an iteration."""

    worker: int
    iteration: int
    end_ns: int  # end of the iteration
    held_ns: int


@dataclass(frozen=True)
class Deepest:
    """The iteration in which the fewest gradients counted; the first if there are several."""

    iteration: int
    start_ns: int
    end_ns: int
    gradients: int


@dataclass(frozen=True)
class CutOffs:
    """Sums over groups of successive iterations that a scheduler closed, indexed by group.

    Attributes:
        width: iterations in a group; the last group may have fewer.
        gradients: sum of the gradients that counted.
        open_s: sum of the seconds that the iterations lasted.
        ended_s: when the last iteration of the group was closed.
    """

    width: int
    iterations: Ints
    gradients: Ints
    open_s: Floats
    ended_s: Floats
    deepest: Deepest


@dataclass(frozen=True)
class TraceTotals:
    """Sums over a whole trace; arrays are indexed by worker."""

    iterations: Ints
    compute_s: Floats
    communicate_s: Floats
    wait_s: Floats
    ended_s: Floats  # time that other workers waited, at any server, for this worker's push
    longest: LongestWait | None
    finished: Ints  # iterations that ended in each STEPS-th of the run
    cut_offs: CutOffs | None

    @property
    def mean_iteration_s(self) -> float:
        """Mean duration of an iteration in seconds; 0 if there was no iteration."""
        total = self.compute_s.sum() + self.communicate_s.sum() + self.wait_s.sum()
        return float(total) / max(int(self.iterations.sum()), 1)


def totals_of(run: Run) -> TraceTotals | None:
    """Return the sums over a run's trace; None, with a line in `problems`, if unreadable."""
    counts = run.summary.get("iterations")
    workers = len(counts) if isinstance(counts, list) else run.setting("workers")
    try:
        with reading(run.trace):
            if not isinstance(workers, int) or not 0 < workers <= _MOST_WORKERS:
                run.trace.stat()
                raise ValueError("no other file says how many workers there were")
        return read_totals(run.trace, workers, run.time_s or 0.0)
    except Unreadable as error:
        run.problems.append(str(error))
        return None


def read_totals(path: Path, workers: int, end_s: float) -> TraceTotals | None:
    """Return the sums over a trace, or None if it has no iteration.

    Args:
        workers: the number of workers of the run.
        end_s: when the run ended.

    Raises:
        Unreadable: if the file is missing or damaged, or names a worker that is not in the run.
    """
    sums = np.zeros((4, workers))  # whole ns, so that sums are exact in any order
    iterations, finished = np.zeros(workers, np.int64), np.zeros(STEPS, np.int64)
    longest: LongestWait | None = None
    closed: list[Columns] = []
    step_ns = max(end_s * 1e9 / STEPS, 1.0)
    with reading(path):
        for batch in batches(path, {"event", *_ITERATION, *_PULL, *_CLOSED}):
            rows = columns_of(batch, _ITERATION, "iteration")
            worker, held = rows["worker"], rows["held_ns"]
            compute = rows["computed_ns"] - rows["start_ns"]
            rest = rows["end_ns"] - rows["computed_ns"] - held
            if any(spans.min(initial=0) < 0 for spans in (rows["start_ns"], compute, rest, held)):
                raise ValueError("an iteration in it ends before it begins")
            iterations += _by_worker(workers, worker)
            for place, spans in enumerate((compute, rest, held)):
                sums[place] += _by_worker(workers, worker, spans)
            steps = np.minimum(rows["end_ns"] / step_ns, STEPS - 1).astype(np.int64)
            finished += np.bincount(steps, minlength=STEPS)
            if len(held) and held.max() > (longest.held_ns if longest else 0):
                at = int(held.argmax())
                longest = LongestWait(
                    *(int(rows[name][at]) for name in ("worker", "iteration", "end_ns", "held_ns"))
                )
            pulls = columns_of(batch, _PULL, "pull")
            ended = pulls["released_by"] != NONE
            spans = (pulls["end_ns"] - pulls["start_ns"])[ended]
            sums[3] += _by_worker(workers, pulls["released_by"][ended], spans)
            closed.append(columns_of(batch, _CLOSED, "cut-off"))
        cut_offs = cut_offs_of(joined(_CLOSED, closed))
    if not iterations.any():
        return None
    compute_s, communicate_s, wait_s, ended_s = sums * 1e-9
    return TraceTotals(
        iterations,
        compute_s,
        communicate_s,
        wait_s,
        ended_s,
        longest,
        finished,
        cut_offs,
    )


def _by_worker(workers: int, worker: Ints, weights: Ints | None = None) -> NDArray[Any]:
    """Return how often each worker occurs, or the sum of its weights."""
    if len(worker) and not 0 <= worker.min() <= worker.max() < workers:
        raise ValueError(
            f"it names worker {worker.max()}, but the run has {plural(workers, 'worker')}"
        )
    return np.bincount(worker, weights, workers)


def cut_offs_of(rows: Columns, most: int = _GROUPS) -> CutOffs | None:
    """Return the sums over iterations that a scheduler closed, or None if there are none.

    Raises:
        ValueError: if an iteration contradicts itself.
    """
    number, start, end, count = (rows[name] for name in _CLOSED)
    if not len(number):
        return None
    if min(number.min(), count.min(), start.min(), (end - start).min()) < 0:
        raise ValueError("an iteration in it was closed before it started, or lacks a number")
    width = ceil(len(number) / most)
    firsts = np.arange(0, len(number), width)
    at = int(count.argmin())
    return CutOffs(
        width,
        np.add.reduceat(np.ones_like(number), firsts),
        np.add.reduceat(count, firsts),
        np.add.reduceat(end - start, firsts) * 1e-9,
        np.maximum.reduceat(end, firsts) * 1e-9,
        Deepest(int(number[at]), int(start[at]), int(end[at]), int(count[at])),
    )
