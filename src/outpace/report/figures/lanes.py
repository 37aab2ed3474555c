"""Chooses the span of time and the workers that a timeline shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from outpace.report.read.events import Events
from outpace.report.read.totals import TraceTotals

MOST: Final = 16  # lanes
_ITERATIONS: Final = 8  # iterations of mean length that fit into a span
_CULPRITS: Final = 4  # lanes for the workers most waited for, or most often cut off
_SLOWEST: Final = 2  # lanes for the workers with the longest mean computation


def first_span(totals: Sequence[TraceTotals]) -> tuple[int, int]:
    """Return a span (ns) at the start of a run, the same for all runs so that they compare.

    The span holds eight iterations of the slowest run, but at most forty of the fastest run.
    """
    lengths = [sums.mean_iteration_s for sums in totals]
    span_s = min(_ITERATIONS * max(lengths), 5 * _ITERATIONS * min(lengths))
    return 0, max(round(span_s * 1e9), 1)


def span_around(start: int, end: int, length: int) -> tuple[int, int]:
    """Return a span of at least `length` ns that contains the time from start to end, near its end.

    What happens in a short time afterwards is in the span, too.
    """
    length = max(length, round(1.5 * (end - start)))
    first = max(end - round(0.7 * length), 0)
    return first, first + length


def choose_lanes(events: Events, workers: int, wanted: Sequence[int] = ()) -> list[int]:
    """Return at most MOST workers, in order.

    The workers in `wanted` come first, then the workers that others waited for most in this span
    (or that were cut off most often), the slowest workers, and the workers with low numbers.
    """
    if workers <= MOST:
        return list(range(workers))
    if len(events.closed["iteration"]):
        cut_off = [worker for worker, _ in events.unused if 0 <= worker < workers]
        culprits = np.bincount(np.array(cut_off, np.int64), minlength=workers)
    else:
        waits = events.waits
        spans = waits["end_ns"] - waits["start_ns"]
        culprits = np.bincount(waits["released_by"], spans, workers)
    rows = events.iterations
    count = np.bincount(rows["worker"], minlength=workers)
    spent = np.bincount(rows["worker"], rows["computed_ns"] - rows["start_ns"], workers)
    slowness = spent / np.maximum(count, 1)
    order = [
        *wanted,
        *_highest(culprits, _CULPRITS),
        *_highest(slowness, _SLOWEST),
        *range(workers),
    ]
    return sorted(list(dict.fromkeys(order))[:MOST])


def _highest(values: NDArray[Any], most: int) -> list[int]:
    """Return the indices of the highest positive values."""
    return [int(index) for index in np.argsort(-values, kind="stable")[:most] if values[index] > 0]
