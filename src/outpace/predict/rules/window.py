"""The iterations seen last, with a guess where a worker was cut off."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from outpace.predict.recorded.table import Mask, Seconds


class Window:
    """At most so many of them.

    A worker that was cut off gets its last uncensored time, or how long it computed if that
    is more: the least that agrees with what is known. A count is raised by that until its
    rule learns the truth. A deadline is not, as all seem to come when the last iteration was
    cut off (see `Rolling`). Guessing more (`Guess`) would raise it, and cost 3 to 4 points on
    clusters whose nodes are fast again after a time. One that was not there never comes.
    """

    def __init__(self, iterations: int) -> None:
        self._rows: deque[Seconds] = deque(maxlen=iterations)
        self._last: Seconds | None = None  # uncensored times

    def observe(self, seconds: Seconds, censored: Mask) -> None:
        came = ~censored & ~np.isnan(seconds)
        last = np.zeros_like(seconds) if self._last is None else self._last
        row = np.where(censored, np.maximum(seconds, last), seconds)
        self._rows.append(np.where(np.isnan(row), math.inf, row))
        self._last = np.where(came, seconds, last)

    def forget(self) -> None:
        """All of them."""
        self._rows.clear()

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def rows(self) -> Seconds:
        """Shape (iterations, N)."""
        return np.stack(self._rows)
