"""Units that are faster than the others, where most are slow: two groups of machines."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outpace.predict.slow.detector import LEAST_FACTOR, detected
from outpace.predict.slow.medians import middle_mean

Floats = NDArray[np.float64]


class Fast(NamedTuple):
    """Units that were faster than the others in the whole run.

    Args:
        units: Their numbers; fewer than half of all.
        factor: Run time of the others as a multiple of theirs.
    """

    units: tuple[int, ...]
    factor: float


def fast(seconds: Floats) -> Fast | None:
    """Return the units that are faster than most others; None if there are none.

    A test for slow units compares with the median. If most units are slow, the median is slow, and
    the test names nothing. The same test with the reciprocals of the run times names the fast ones.

    Args:
        seconds: Shape (T, N); NaN where a unit has no run time.
    """
    units = seconds.shape[1]
    known = np.flatnonzero((seconds > 0).sum(axis=1) == units)
    if units < 3 or not len(known):
        return None
    logs = np.log(seconds[known])
    logs = logs - np.median(logs, axis=1, keepdims=True)
    if min(middle_mean(logs[:, unit]) for unit in range(units)) > -math.log(LEAST_FACTOR) / 2:
        return None
    periods = detected(1 / seconds[known])
    most = len(known) / 2
    found = {each.unit for each in periods if each.last is None and each.first < most}
    if not found or 2 * len(found) >= units:
        return None
    others = [unit for unit in range(units) if unit not in found]
    mine = np.median(logs[:, sorted(found)], axis=1)
    factor = math.exp(middle_mean(np.median(logs[:, others], axis=1) - mine))
    return Fast(tuple(sorted(found)), factor)
