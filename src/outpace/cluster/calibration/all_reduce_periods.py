"""How long all-reduces take by number and size, from the periods of a profiled run.

A period with k all-reduces of m bytes together takes k · latency + m · s_per_byte. Medians of the
periods that are alike are fitted to that (`transits.fit_line`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.cluster.calibration import Floats, Ints
from outpace.cluster.calibration.profiles import Periods
from outpace.cluster.calibration.transits import fit_line

_LEAST_RATIO: Final = 2.0  # between the largest and the smallest all-reduce, to have a latency


@dataclass(frozen=True, slots=True, eq=False)
class PeriodFit:
    """The law of the all-reduces of a run, and what it was fitted to.

    Args:
        latency_s: Seconds of an all-reduce of no bytes.
        s_per_byte: Further seconds for each byte.
        has_latency: False if all all-reduces have about the same size; latency_s is 0 then.
        count, size_bytes, seconds: All-reduces, their bytes together, and the median length of
            each kind of period.
        often: Number of periods of each kind.
    """

    latency_s: float
    s_per_byte: float
    has_latency: bool
    count: Ints
    size_bytes: Ints
    seconds: Floats
    often: Ints

    def at(self, size_bytes: float) -> float:
        """Return the seconds that one all-reduce of a value takes."""
        return self.latency_s + size_bytes * self.s_per_byte

    @property
    def fitted(self) -> Floats:
        """Lengths of the periods by the law, in s."""
        return np.asarray(self.count * self.latency_s + self.size_bytes * self.s_per_byte)

    @property
    def error(self) -> float:
        """Median of the relative errors."""
        return float(np.median(np.abs(self.fitted / self.seconds - 1)))

    @property
    def testable(self) -> bool:
        """True if there are more kinds of periods than parameters: otherwise the law meets all."""
        return len(self.seconds) > (2 if self.has_latency else 1)


def fit_periods(periods: Periods) -> PeriodFit:
    """Return the law that describes these periods best."""
    keys = np.stack([periods.count, periods.size_bytes], axis=1)
    groups, which, often = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    which = which.ravel()
    medians = np.array([np.median(periods.seconds[which == n]) for n in range(len(groups))])
    count, size_bytes = groups[:, 0], groups[:, 1]
    each = size_bytes / count
    if each.max() < _LEAST_RATIO * max(each.min(), 1):
        slope = float(np.average(medians / np.maximum(size_bytes, 1), weights=often))
        return PeriodFit(0.0, slope, False, count, size_bytes, medians, often)
    weight = np.sqrt(often / often.max())

    low, high = int(np.argmin(each)), int(np.argmax(each))
    start = medians[low] / count[low], medians[high] / size_bytes[high]
    line = fit_line(count, size_bytes, medians, weight, start, least_slope=1e-16)
    return PeriodFit(*line, True, count, size_bytes, medians, often)
