"""Finds the times in which a rank of a profiled run did nothing but wait for communication.

A profiler records what a rank computes and when its collectives begin and end, but not when it
waits. A rank that waits for a collective continues when the collective ends. So the wait for a
collective is a part of the gap in the rank's computation in which the collective ends: from the
beginning of the gap or of the collective, whichever is later, to the end of the collective. Other
gaps are not waits, even while a collective runs: time in Python between two operations, a sleep,
the loading of data. They count as computation.

Gloo's threads note the end of a collective a moment after the thread that waits has continued. So
the gap may have ended before: then the longest of the gaps that ended at most `LATE_S` before the
collective counts. NCCL's kernels end on the GPU, and the next kernel begins after them, so the gap
never ends before: an earlier gap lies between two other kernels and is not a wait.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.cluster.calibration import Floats

LATE_S: Final = 5e-4  # s; longest time from the end of a collective of Gloo until it is noted


def merged(begins: Floats, ends: Floats) -> Floats:
    """Return the union of intervals as disjoint intervals in order, shape (n, 2)."""
    if not len(begins):
        return np.zeros((0, 2))
    order = np.argsort(begins, kind="stable")
    begins, latest = begins[order], np.maximum.accumulate(ends[order])
    is_new = np.concatenate([[True], begins[1:] > latest[:-1]])
    last = np.concatenate([np.flatnonzero(is_new)[1:] - 1, [len(begins) - 1]])
    return np.stack([begins[is_new], latest[last]], axis=1)


def waits(busy: Floats, begins: Floats, ends: Floats, late_s: float) -> Floats:
    """Return the intervals in which the rank waited for its collectives, disjoint and in order.

    Args:
        busy: Intervals in which the rank computed, shape (B, 2), disjoint and in order.
        begins: Time when the rank began each collective, shape (M,).
        ends: Time when each collective ended for this rank, shape (M,).
        late_s: Largest delay with which the end of a collective is noted.
    """
    gap_begins = np.concatenate([[-np.inf], busy[:, 1]])
    gap_ends = np.concatenate([busy[:, 0], [np.inf]])
    first = np.searchsorted(gap_ends, ends - late_s)  # the first gap that ends after the collective
    last = np.searchsorted(gap_begins, ends, side="right")
    found = []
    for begin, end, low, high in zip(begins, ends, first, last, strict=True):
        starts = np.maximum(gap_begins[low:high], begin)
        stops = np.minimum(gap_ends[low:high], end)
        if len(starts) and (lengths := stops - starts).max() > 0:
            longest = int(np.argmax(lengths))
            found.append((starts[longest], stops[longest]))
    if not found:
        return np.zeros((0, 2))
    columns = np.array(found)
    return merged(columns[:, 0], columns[:, 1])


def total_before(intervals: Floats, times: Floats) -> Floats:
    """Return how much of disjoint intervals, in order, lies before each of these times."""
    if not len(intervals):
        return np.zeros(len(times))
    lengths = intervals[:, 1] - intervals[:, 0]
    sums = np.concatenate([[0.0], np.cumsum(lengths)])
    place = np.searchsorted(intervals[:, 0], times)  # intervals that begin before
    whole = np.maximum(place - 1, 0)
    part = np.where(place > 0, np.minimum(times - intervals[whole, 0], lengths[whole]), 0.0)
    return np.asarray(sums[whole] + part)
