"""The best that can be: the rule that is told the times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions.count import best_count
from outpace.predict.rules.decisions.objective import Objective
from outpace.predict.rules.iteration import came


class Oracle:
    """times: gives those of the next iteration, shape (N,), each time that it is called.

    In a run they are what computing takes. What comes on top, messages and servers, is taken
    to be what it was in the iteration before: the median over those who came.
    """

    def __init__(self, times: Callable[[], Seconds], objective: Objective) -> None:
        self._times = times
        self._objective = objective
        self._told: Seconds = np.zeros(0)
        self._on_top_s = 0.0

    def begin(self) -> Wait:
        self._told = self._times()
        order = np.sort(np.where(np.isnan(self._told), np.inf, self._told + self._on_top_s))
        return best_count(order[None], self._objective).wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        raise AssertionError("never asks to be asked again")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        on_top = (seconds - self._told)[~censored]
        self._on_top_s = max(0.0, float(np.nanmedian(on_top)))
        self._objective.observe(came(seconds, censored, ended_s), ended_s)
