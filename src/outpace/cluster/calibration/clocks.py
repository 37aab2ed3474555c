"""Brings the clocks of the ranks of a profiled run together.

All ranks leave an all-reduce at nearly the same time. So the difference between the clocks of two
ranks is the median of the differences between the ends of their all-reduces, and their drift the
median of the slopes between pairs of them (Theil and Sen: Sen, Estimates of the regression
coefficient based on Kendall's tau, Journal of the American Statistical Association 63, 1968).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.stats

from outpace.cluster.calibration import Floats

_MOST: Final = 300  # ends for the drift, whose cost grows with the square
_LEAST: Final = 10  # ends; the drift of fewer is not estimated


@dataclass(frozen=True, slots=True)
class Clock:
    """A rank's clock against that of the first rank.

    Args:
        ahead_s: How far it is ahead at the time `at` of its own.
        drift: How much more it is ahead per second.
    """

    ahead_s: float
    drift: float
    at: float

    def common(self, times: Floats) -> Floats:
        """Return times of this clock in that of the first rank."""
        return times - self.ahead_s - self.drift * (times - self.at)


def clocks_of(ends: Floats) -> list[Clock]:
    """Return the clocks of all ranks.

    Args:
        ends: When the all-reduces ended, each rank by its own clock, in s, shape (M, N).
    """
    at = float(np.median(ends[:, 0]))
    return [Clock(0.0, 0.0, at), *(_clock(ends[:, 0], mine) for mine in ends.T[1:])]


def _clock(first: Floats, mine: Floats) -> Clock:
    ahead, at = mine - first, float(np.median(mine))
    drift = 0.0
    if len(ahead) >= _LEAST:
        chosen = np.linspace(0, len(ahead) - 1, min(len(ahead), _MOST)).astype(np.int64)
        slope = scipy.stats.theilslopes(ahead[chosen], mine[chosen])
        if slope.low_slope > 0 or slope.high_slope < 0:  # 95 % certain that there is one
            drift = float(slope.slope)
    ahead_s = float(np.median(ahead - drift * (mine - at)))
    return Clock(ahead_s, drift, at)
