"""Guesses how long workers that were cut off would have taken."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from outpace.predict.recorded.table import Mask, Seconds

_WHOLE: Final = 20  # remembered iterations without a cut-off
_FAST: Final = 0.2  # times are taken relative to this quantile of their iteration


class Guess:
    """Guesses how long workers that were cut off would have taken.

    The guesses come from the last 20 iterations without a cut-off (possibly the warm-up), as
    times relative to the fast workers of the iteration. The workers that were cut off, ordered
    by their last uncensored times, are spread evenly over the times that exceed their bounds.
    A guess is never below the worker's last uncensored time, which is taken relative to the fast
    workers, too, because all workers may be slower or faster than they were then.

    If no time exceeds the bound b, nothing is known about what lies beyond it. A worker then is
    taken to need more than x seconds with probability b / x. With this law, and with no other,
    waiting longer for it alone neither raises nor lowers the expected gradients per second.
    """

    def __init__(self) -> None:
        self._whole: deque[Seconds] = deque(maxlen=_WHOLE)
        self._relative = np.zeros(0)  # ascending
        self._last: Seconds | None = None  # uncensored times, relative
        self.blind = False  # in the last iteration a bound exceeded all known times

    def observe(self, seconds: Seconds, censored: Mask) -> Seconds:
        """Return the times with guesses in place of bounds, shape (N,); NaN: absent."""
        there = ~np.isnan(seconds)
        last = np.zeros_like(seconds) if self._last is None else self._last
        known = np.sort(seconds[there])
        fast = known[int(_FAST * (len(known) - 1))]
        self._last = np.where(there & ~censored, seconds / fast, last)
        self.blind = False
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
        return np.where(censored, np.maximum(row, fast * last), row)

    def _spread(self, bound: Seconds) -> Seconds:
        """Return relative times spread evenly over those above each bound."""
        place = np.searchsorted(self._relative, bound, "right")
        beyond = len(self._relative) - place
        self.blind = not beyond.all()
        level = (np.arange(len(bound)) + 0.5) / len(bound)
        longer = np.append(self._relative, np.inf)[place + (level * beyond).astype(np.int64)]
        return np.where(beyond > 0, longer, bound / (1 - level))
