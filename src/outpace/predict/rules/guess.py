"""How long those who were cut off would have taken, from iterations that were seen whole."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from outpace.runtimes.table import Mask, Seconds

_WHOLE: Final = 20  # iterations in which nobody was cut off, whose times are remembered
_FAST: Final = 0.2  # an iteration's times are seen relative to this quantile


class Guess:
    """A worker that was cut off gets the mean of those times that were longer than it computed,
    relative to the fast workers of their iteration, in the last 20 that were seen whole: those
    of the warm-up, if somebody has been cut off ever since. Or its own last time, if that is
    more; and if no time was longer, it is taken to have been about to come.
    """

    def __init__(self) -> None:
        self._whole: deque[Seconds] = deque(maxlen=_WHOLE)
        self._relative = np.zeros(0)  # ascending
        self._sums = np.zeros(1)  # of each of them and all after it; of none
        self._last: Seconds | None = None  # uncensored times

    def observe(self, seconds: Seconds, censored: Mask) -> Seconds:
        """The iteration's times, shape (N,), filled up; NaN: was not there."""
        there = ~np.isnan(seconds)
        last = np.zeros_like(seconds) if self._last is None else self._last
        self._last = np.where(there & ~censored, seconds, last)
        known = np.sort(seconds[there])
        fast = known[int(_FAST * (len(known) - 1))]
        if not censored.any():
            self._whole.append(known / fast)
            self._relative = np.zeros(0)
            return seconds
        if self._whole and not len(self._relative):
            self._relative = np.sort(np.concatenate(self._whole))
            self._sums = np.append(self._relative[::-1].cumsum()[::-1], 0.0)
        row = seconds.copy()
        bound = row[censored]
        row[censored] = np.maximum(fast * self._mean_beyond(bound / fast), last[censored])
        return np.fmax(row, seconds)

    def _mean_beyond(self, bound: Seconds) -> Seconds:
        """The mean of the relative times above each of the bounds; the bound, if none is."""
        if not len(self._relative):
            return bound
        place = np.searchsorted(self._relative, bound, "right")
        beyond = len(self._relative) - place
        return np.where(beyond > 0, self._sums[place] / beyond.clip(1), bound)
