"""Chooses the span of time and the workers that a timeline shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.report.read.closed import Deepest
from outpace.report.read.events import Events
from outpace.report.read.totals import LongestWait, TraceTotals

MOST: Final = 16  # lanes
_ITERATIONS: Final = 8  # iterations of mean length that fit into a span
_CULPRITS: Final = 4  # lanes for the workers most waited for, or most often cut off


def first_span(totals: Sequence[TraceTotals]) -> tuple[int, int]:
    """Return a span (ns) at the start of a run, the same for all runs so that they compare.

    The span holds eight iterations of the slowest run, but at most forty of the fastest run.
    """
    lengths = [sums.mean_iteration_s for sums in totals]
    span_s = min(_ITERATIONS * max(lengths), 5 * _ITERATIONS * min(lengths))
    return 0, max(round(span_s * 1e9), 1)


def span_around(wait: LongestWait, length: int) -> tuple[int, int]:
    """Return a span of at least `length` ns that contains the wait, near its end."""
    length = max(length, round(1.5 * wait.held_ns))
    start = max(wait.end_ns - round(0.8 * length), 0)
    return start, start + length


def span_until(closed: Deepest, length: int) -> tuple[int, int]:
    """Return a span of at least `length` ns around a closed iteration."""
    length = max(length, round(1.5 * (closed.end_ns - closed.start_ns)))
    start = max(closed.end_ns - round(0.6 * length), 0)
    return start, start + length


def choose_lanes(events: Events, workers: int, wanted: Sequence[int] = ()) -> list[int]:
    """Return at most MOST workers, in order.

    The workers in `wanted` come first, then the workers that others waited for most in this span
    (or that were cut off most often), the slowest workers, and the workers with low numbers.
    """
    if workers <= MOST:
        return list(range(workers))
    is_closed = len(events.closed["iteration"]) > 0
    most = _cut_off_most(events, workers) if is_closed else _awaited_most(events, workers)
    order = [*wanted, *most[:_CULPRITS], *_slowest(events, workers), *range(workers)]
    return sorted(list(dict.fromkeys(order))[:MOST])


def _awaited_most(events: Events, workers: int) -> list[int]:
    waits = events.waits
    held = np.bincount(waits["released_by"], waits["end_ns"] - waits["start_ns"], workers)
    return [int(worker) for worker in np.argsort(-held, kind="stable") if held[worker] > 0]


def _cut_off_most(events: Events, workers: int) -> list[int]:
    counts = Counter(worker for worker, _ in events.unused if 0 <= worker < workers)
    return sorted(counts, key=lambda worker: (-counts[worker], worker))


def _slowest(events: Events, workers: int) -> list[int]:
    """Return the two workers with the longest mean computation."""
    rows = events.iterations
    count = np.bincount(rows["worker"], minlength=workers)
    spent = np.bincount(rows["worker"], rows["computed_ns"] - rows["start_ns"], workers)
    mean = spent / np.maximum(count, 1)
    return [int(worker) for worker in np.argsort(-mean, kind="stable")[:2]]
