"""Reads a trace twice, batch by batch: once for sums, once for what a picture needs.

The first pass keeps a few numbers per worker. The second keeps the events inside given
spans of time. Only the columns needed are read, and one row group after the other: a
reader over many groups keeps something of each. So memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outpace.report.read.batches import NULL, Columns, Ints, batches, numbers
from outpace.report.read.closed import CutOffs, Gathered
from outpace.report.read.errors import reading

Floats = NDArray[np.float64]

_ITERATION: Final = ("worker", "shard", "iteration", "start_ns", "computed_ns", "end_ns", "held_ns")
_PULL: Final = ("worker", "shard", "iteration", "start_ns", "end_ns", "released_by")
_PUSH: Final = ("worker", "iteration", "start_ns")
_CLOSED: Final = ("iteration", "start_ns", "end_ns", "clock")
_REDUCTION: Final = (
    "worker",
    "iteration",
    "start_ns",
    "computed_ns",
    "end_ns",
    "version",
    "clock",
)
_UNUSED: Final = pa.array(["abstained", "dropped"])  # outcomes of a push
STEPS: Final = 200  # into which the run is cut for `TraceTotals.finished`


@dataclass(frozen=True)
class LongestWait:
    """The longest that an iteration was held up at a server."""

    worker: int
    iteration: int
    end_ns: int  # of the iteration
    held_ns: int


@dataclass(frozen=True)
class TraceTotals:
    """Sums over a whole trace; arrays are indexed by worker."""

    iterations: Ints
    compute_s: Floats
    communicate_s: Floats
    wait_s: Floats
    ended_s: Floats  # time that others waited, at any server, until this worker released them
    longest: LongestWait | None
    finished: Ints  # iterations that ended in each STEPS-th of the run
    cut_offs: CutOffs | None

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
    closed: Columns  # the iterations that a scheduler closed, with the gradients as clock
    unused: dict[tuple[int, int], str]  # worker and iteration -> outcome of that gradient
    reductions: Columns  # all-reduces as workers see them; computed_ns: all had joined


def read_totals(path: Path, workers: int, end_s: float) -> TraceTotals | None:
    """None if there is no iteration in it. Raises Unreadable.

    workers: how many there may be; end_s: when the run ended.
    """
    sums = np.zeros((4, workers))  # of whole ns: exact, in whatever order they are added
    iterations, finished = np.zeros(workers, np.int64), np.zeros(STEPS, np.int64)
    longest: LongestWait | None = None
    closed = Gathered()
    step_ns = max(end_s * 1e9 / STEPS, 1.0)
    with reading(path):
        for batch in batches(path, {"event", *_ITERATION, *_PULL, *_CLOSED}):
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
                longest = LongestWait(
                    *(int(rows[name][at]) for name in ("worker", "iteration", "end_ns", "held_ns"))
                )
            pulls = _rows(batch, "pull", _PULL)
            ended = pulls["released_by"] != NULL
            spans = (pulls["end_ns"] - pulls["start_ns"])[ended]
            sums[3] += _by_worker(workers, pulls["released_by"][ended], spans)
            closed.add(_rows(batch, "cut-off", _CLOSED))
    if not iterations.any():
        return None
    compute_s, communicate_s, wait_s, ended_s = sums * 1e-9
    return TraceTotals(
        iterations, compute_s, communicate_s, wait_s, ended_s, longest, finished, closed.all()
    )


def read_events(path: Path, spans: Sequence[tuple[int, int]]) -> list[Events]:
    """What overlaps each of these spans (ns). Raises Unreadable."""
    found = [_Span(low, high) for low, high in spans]
    columns = {"event", *_ITERATION, *_PULL, *_REDUCTION, "lead", "bound", "reason", "outcome"}
    with reading(path):
        for batch in batches(path, columns, [(span.early, span.late) for span in found]):
            for span in found:
                span.add(batch)
    return [span.events() for span in found]


class _Span:
    """From low to high. A wait, and the push of a gradient, may lie beyond it though its
    iteration reaches into it: these are kept from `early` to `late`.
    """

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self.early, self.late = 2 * low - high, 2 * high - low
        self._iterations: list[Columns] = []
        self._waits: list[Columns] = []
        self._reasons: list[str] = []
        self._closed: list[Columns] = []
        self._unused: dict[tuple[int, int], str] = {}
        self._reductions: list[Columns] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for event, names, kept in (
            ("iteration", _ITERATION, self._iterations),
            ("cut-off", _CLOSED, self._closed),
            ("all-reduce", _REDUCTION, self._reductions),
        ):
            rows = _rows(batch, event, names)
            inside = (rows["end_ns"] > self._low) & (rows["start_ns"] < self._high)
            kept.append({name: column[inside] for name, column in rows.items()})
        pulls = _rows(batch, "pull", (*_PULL, "lead", "bound"))
        near = (pulls["end_ns"] != NULL) & (pulls["released_by"] != NULL)
        near &= (pulls["end_ns"] > self.early) & (pulls["start_ns"] < self._high)
        self._waits.append({name: column[near] for name, column in pulls.items()})
        if near.any():
            reasons = batch["reason"].filter(_is(batch, "pull")).filter(pa.array(near))
            self._reasons += [str(reason) for reason in reasons.to_pylist()]
        self._add_pushes(batch)

    def _add_pushes(self, batch: pa.RecordBatch) -> None:
        pushes = _rows(batch, "push", _PUSH)
        outcome = batch["outcome"].filter(_is(batch, "push")).cast(pa.string())
        near = (pushes["start_ns"] > self.early) & (pushes["start_ns"] < self.late)
        near &= pc.is_in(outcome, value_set=_UNUSED).to_numpy(zero_copy_only=False)
        if near.any():
            keys = zip(*(pushes[name][near].tolist() for name in _PUSH[:2]), strict=True)
            self._unused.update(zip(keys, outcome.filter(pa.array(near)).to_pylist(), strict=True))

    def events(self) -> Events:
        return Events(
            _joined(_ITERATION, self._iterations),
            _joined((*_PULL, "lead", "bound"), self._waits),
            self._reasons,
            _joined(_CLOSED, self._closed),
            self._unused,
            _joined(_REDUCTION, self._reductions),
        )


def _by_worker(workers: int, worker: Ints, weights: Ints | None = None) -> NDArray[Any]:
    """How often each worker is there, or the sum of its weights."""
    if len(worker) and not 0 <= worker.min() <= worker.max() < workers:
        raise ValueError(f"it names worker {worker.max()}, of {workers} workers")
    return np.bincount(worker, weights, workers)


def _is(batch: pa.RecordBatch, event: str) -> pa.Array:
    return pc.equal(batch["event"], event)


def _rows(batch: pa.RecordBatch, event: str, names: Sequence[str]) -> Columns:
    """Return these columns of the rows of that event."""
    return numbers(batch.select(list(names)).filter(_is(batch, event)), names)


def _joined(names: Sequence[str], parts: Sequence[Columns]) -> Columns:
    return {
        name: np.concatenate([part[name] for part in parts] or [np.zeros(0, np.int64)])
        for name in names
    }
