"""Converts the times of the ranks of a profiled run to one clock.

All ranks leave an all-reduce at nearly the same time. So the difference between the clocks of two
ranks is the median of the differences between the ends of their all-reduces. Their drift is the
median of the slopes between pairs of all-reduces (Theil and Sen: Sen, Estimates of the regression
coefficient based on Kendall's tau, Journal of the American Statistical Association 63, 1968).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.stats

from outpace.cluster.calibration import Floats

_MOST: Final = 300  # largest number of ends for the drift: its cost grows with the square
_LEAST: Final = 10  # number of ends below which no drift is estimated


@dataclass(frozen=True, slots=True)
class Clock:
    """A rank's clock, compared with the clock of the first rank.

    Args:
        ahead_s: How far the clock is ahead at its own time `at`.
        drift: Increase of this lead per second.
    """

    ahead_s: float
    drift: float
    at: float

    def common(self, times: Floats) -> Floats:
        """Convert times of this clock to the clock of the first rank."""
        return times - self.ahead_s - self.drift * (times - self.at)


def clocks_of(ends: Floats) -> list[Clock]:
    """Return the clocks of all ranks.

    Args:
        ends: Times when the all-reduces ended, by each rank's own clock, in s, shape (M, N).
    """
    at = float(np.median(ends[:, 0]))
    return [Clock(0.0, 0.0, at), *(_clock(ends[:, 0], mine) for mine in ends.T[1:])]


def _clock(first: Floats, mine: Floats) -> Clock:
    ahead, at = mine - first, float(np.median(mine))
    drift = 0.0
    if len(ahead) >= _LEAST:
        chosen = np.linspace(0, len(ahead) - 1, min(len(ahead), _MOST)).astype(np.int64)
        slope = scipy.stats.theilslopes(ahead[chosen], mine[chosen])
        # there is a drift with a probability of 95 %
        if slope.low_slope > 0 or slope.high_slope < 0:
            drift = float(slope.slope)
    ahead_s = float(np.median(ahead - drift * (mine - at)))
    return Clock(ahead_s, drift, at)
