"""A count fixed after a first window, as if run times were normal (BDSGD's comparison)."""

from __future__ import annotations

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions.count import best_count
from outpace.predict.rules.decisions.objective import ThroughputObjective
from outpace.predict.rules.normal_order import normal_scores
from outpace.support.checks import require


class Elfving:
    """Waits for all during the window, then for the count that is best for
    E[x_(j)] ≈ μ + σ E[z_(j)], with μ and σ by maximum likelihood from all the window's times.

    No order statistic is taken to be below the smallest time of the window. Times with two
    modes have so large a σ that the formula says that the first comes after next to nothing,
    or before the beginning, and a server that waits for one worker would be best.
    """

    def __init__(self, *, window: int = 20) -> None:
        require(window >= 1, "window", "at least 1 iteration", window)
        self._missing = window
        self._rows: list[Seconds] = []
        self._wait = Wait()

    def begin(self) -> Wait:
        return self._wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        raise AssertionError("never asks to be asked again")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        if not self._missing:
            return
        self._rows.append(seconds)
        self._missing -= 1
        if not self._missing:
            expected = expected_order(np.stack(self._rows))
            self._wait = best_count(expected[None], ThroughputObjective()).wait
            self._rows.clear()


def expected_order(times: Seconds) -> Seconds:
    """E[x_(1)] ≤ ... ≤ E[x_(N)] of the next row. times: shape (T, N), NaN if not there."""
    scores = normal_scores(times.shape[1])
    expected = np.nanmean(times) + np.nanstd(times) * scores
    return np.asarray(np.maximum(expected, np.nanmin(times)), dtype=np.float64)
