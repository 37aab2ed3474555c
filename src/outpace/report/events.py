"""Reads a trace twice, batch by batch: once for sums, once for what a picture needs.

The first pass keeps a few numbers per worker. The second keeps the events inside given
spans of time. Only the columns needed are read, and one row group after the other: a
reader over many groups keeps something of each. So memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outpace.report.reading import reading

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Columns = dict[str, Ints]
NULL: Final = -(2**63)

_BATCH: Final = 1 << 16  # rows
_ITERATION: Final = ("worker", "shard", "iteration", "start_ns", "computed_ns", "end_ns", "held_ns")
_PULL: Final = ("worker", "shard", "iteration", "start_ns", "end_ns", "released_by")
STEPS: Final = 200  # into which the run is cut for `Totals.finished`


@dataclass(frozen=True)
class Wait:
    """The longest that an iteration was held up at a server."""

    worker: int
    iteration: int
    end_ns: int  # of the iteration
    held_ns: int


@dataclass(frozen=True)
class Totals:
    """Sums over a whole trace; arrays are indexed by worker."""

    iterations: Ints
    compute_s: Floats
    communicate_s: Floats
    wait_s: Floats
    ended_s: Floats  # time that others waited, at any server, until this worker released them
    longest: Wait | None
    finished: Ints  # iterations that ended in each STEPS-th of the run

    @property
    def mean_iteration_s(self) -> float:
        """0 if there was none."""
        total = self.compute_s.sum() + self.communicate_s.sum() + self.wait_s.sum()
        return float(total) / max(int(self.iterations.sum()), 1)


@dataclass(frozen=True)
class Events:
    """What overlaps a span of time, as columns."""

    iterations: Columns
    waits: Columns  # pulls that somebody released; with lead, bound
    reasons: list[str]  # of the waits


def read_totals(path: Path, workers: int, end_s: float) -> Totals | None:
    """None if there is no iteration in it. Raises Unreadable.

    workers: how many there may be; end_s: when the run ended.
    """
    sums = np.zeros((4, workers))  # of whole ns: exact, in whatever order they are added
    iterations, finished = np.zeros(workers, np.int64), np.zeros(STEPS, np.int64)
    longest: Wait | None = None
    step_ns = max(end_s * 1e9 / STEPS, 1.0)
    with reading(path):
        for batch in _batches(path, {*_ITERATION, *_PULL}):
            rows = _rows(batch, "iteration", _ITERATION)
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
                longest = Wait(*(int(rows[name][at]) for name in
                                 ("worker", "iteration", "end_ns", "held_ns")))  # fmt: skip
            pulls = _rows(batch, "pull", _PULL)
            ended = pulls["released_by"] != NULL
            spans = (pulls["end_ns"] - pulls["start_ns"])[ended]
            sums[3] += _by_worker(workers, pulls["released_by"][ended], spans)
    if not iterations.any():
        return None
    compute_s, communicate_s, wait_s, ended_s = sums * 1e-9
    return Totals(iterations, compute_s, communicate_s, wait_s, ended_s, longest, finished)


def read_events(path: Path, spans: Sequence[tuple[int, int]]) -> list[Events]:
    """What overlaps each of these spans (ns). Raises Unreadable."""
    iterations: list[list[Columns]] = [[] for _ in spans]
    waits: list[list[Columns]] = [[] for _ in spans]
    reasons: list[list[str]] = [[] for _ in spans]
    # A wait may lie before the span though its iteration reaches into it.
    reach = [(2 * low - high, high) for low, high in spans]
    with reading(path):
        for batch in _batches(path, {*_ITERATION, *_PULL, "lead", "bound", "reason"}, reach):
            rows = _rows(batch, "iteration", _ITERATION)
            pulls = _rows(batch, "pull", (*_PULL, "lead", "bound"))
            answered = (pulls["end_ns"] != NULL) & (pulls["released_by"] != NULL)
            for place, ((low, high), (early, _)) in enumerate(zip(spans, reach, strict=True)):
                inside = (rows["end_ns"] > low) & (rows["start_ns"] < high)
                iterations[place].append({name: column[inside] for name, column in rows.items()})
                near = answered & (pulls["end_ns"] > early) & (pulls["start_ns"] < high)
                waits[place].append({name: column[near] for name, column in pulls.items()})
                if near.any():
                    names = batch["reason"].filter(_is(batch, "pull")).filter(pa.array(near))
                    reasons[place] += [str(name) for name in names.to_pylist()]
    return [
        Events(_joined(_ITERATION, iterations[place]),
               _joined((*_PULL, "lead", "bound"), waits[place]), reasons[place])
        for place in range(len(spans))
    ]  # fmt: skip


def _batches(
    path: Path, columns: set[str], spans: Sequence[tuple[int, int]] | None = None
) -> Iterator[pa.RecordBatch]:
    """Those that can hold an event of one of these spans (ns); without spans, all."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            if spans is None or _overlaps(file.metadata.row_group(group), spans):
                yield from file.iter_batches(
                    _BATCH, [group], sorted({"event", *columns}), use_threads=False
                )


def _overlaps(group: Any, spans: Sequence[tuple[int, int]]) -> bool:
    """By the bounds that the file gives for this row group; true if it gives none."""
    columns = (group.column(place) for place in range(group.num_columns))
    bounds = {column.path_in_schema: column.statistics for column in columns}
    start, end = bounds.get("start_ns"), bounds.get("end_ns")
    if start is None or end is None or not (start.has_min_max and end.has_min_max):
        return True
    return any(end.max > low and start.min < high for low, high in spans)


def _by_worker(workers: int, worker: Ints, weights: Ints | None = None) -> NDArray[Any]:
    """How often each worker is there, or the sum of its weights."""
    if len(worker) and not 0 <= worker.min() <= worker.max() < workers:
        raise ValueError(f"it names worker {worker.max()}, of {workers} workers")
    return np.bincount(worker, weights, workers)


def _is(batch: pa.RecordBatch, event: str) -> pa.Array:
    return pc.equal(batch["event"], event)


def _rows(batch: pa.RecordBatch, event: str, names: Sequence[str]) -> Columns:
    """The columns of the rows of that event; null is NULL."""
    chosen = _is(batch, event)
    return {
        name: batch[name].filter(chosen).cast(pa.int64()).fill_null(NULL).to_numpy()
        for name in names
    }


def _joined(names: Sequence[str], parts: Sequence[Columns]) -> Columns:
    return {
        name: np.concatenate([part[name] for part in parts] or [np.zeros(0, np.int64)])
        for name in names
    }
