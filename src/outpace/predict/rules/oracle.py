"""The rule that knows the next run times: an upper limit for other rules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions import best_count
from outpace.predict.rules.iteration import came
from outpace.predict.rules.objective import Objective


class Oracle:
    """Waits for the best count, given the true run times.

    Each call of `times` returns the times of the next iteration, shape (N,). In a run they
    contain computation only; the rule adds the time of messages and servers in the previous
    iteration, as the median over the workers that finished.
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
        raise AssertionError("this rule never asks for a review")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        on_top = (seconds - self._told)[~censored]
        self._on_top_s = max(0.0, float(np.nanmedian(on_top)))
        self._objective.observe(came(seconds, censored, ended_s), ended_s)
