"""How long those who were cut off would have taken, from iterations that were seen whole."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from outpace.predict.recorded.table import Mask, Seconds

_WHOLE: Final = 20  # iterations in which nobody was cut off, whose times are remembered
_FAST: Final = 0.2  # an iteration's times are seen relative to this quantile


class Guess:
    """Those who were cut off are spread over the times that were longer than they computed,
    relative to the fast workers of their iteration, in the last 20 that were seen whole: those
    of the warm-up, if somebody has been cut off ever since. The first of them is who was the
    fastest when last seen; nobody takes less than that. If no time was longer, they are taken
    to have been about to come.
    """

    def __init__(self) -> None:
        self._whole: deque[Seconds] = deque(maxlen=_WHOLE)
        self._relative = np.zeros(0)  # ascending
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
        cut = np.flatnonzero(censored)
        cut = cut[np.argsort(last[cut], kind="stable")]
        row = seconds.copy()
        row[cut] = np.maximum(fast * self._spread(seconds[cut] / fast), seconds[cut])
        return np.where(censored, np.maximum(row, last), row)

    def _spread(self, bound: Seconds) -> Seconds:
        """Evenly, over the relative times above each one's bound; the bound, if none is."""
        place = np.searchsorted(self._relative, bound, "right")
        beyond = len(self._relative) - place
        level = (np.arange(len(bound)) + 0.5) / len(bound)
        longer = np.append(self._relative, np.inf)[place + (level * beyond).astype(np.int64)]
        return np.where(beyond > 0, longer, bound)
