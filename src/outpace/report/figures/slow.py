"""Periods in which a worker was slow, compared with itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.record.reading import Columns, chosen_rows

SLOW: Final = 1.5  # a computation is slow if it takes longer than this multiple of the median


@dataclass
class SlowPeriod:
    """Successive iterations of a worker whose computations were slow.

    Attributes:
        first, last: the iterations.
        start_ns, end_ns: from the start of the first one until the last one was computed.
        most: the longest of the computations, as a multiple of the worker's median.
    """

    worker: int
    first: int
    last: int
    start_ns: int
    end_ns: int
    most: float


def slow_periods(iterations: Columns, medians_ns: NDArray[np.float64]) -> list[SlowPeriod]:
    """Return the slow periods among these iterations, by worker and time.

    Args:
        iterations: columns worker, iteration, start_ns and computed_ns.
        medians_ns: the median of the computations of each worker in the whole run.
    """
    order = np.lexsort((iterations["start_ns"], iterations["worker"]))
    found: list[SlowPeriod] = []
    continues = False  # the iteration before, of the same worker, was slow
    for row in chosen_rows(iterations, order):
        worker, end = row["worker"], row["computed_ns"]
        took, median = end - row["start_ns"], medians_ns[worker]
        if not took > SLOW * median > 0:
            continues = False
            continue
        if not (continues and found[-1].worker == worker):
            found.append(SlowPeriod(worker, row["iteration"], 0, row["start_ns"], 0, 0.0))
        period, continues = found[-1], True
        period.last, period.end_ns = row["iteration"], end
        period.most = max(period.most, took / float(median))
    return found
