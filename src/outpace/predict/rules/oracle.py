"""The best that can be: the rule that is told the times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.rules.count import best_count
from outpace.predict.rules.iteration import came
from outpace.predict.rules.objective import Objective
from outpace.runtimes.table import Mask, Seconds


class Oracle:
    """times: gives those of the next iteration, shape (N,), each time that it is called."""

    def __init__(self, times: Callable[[], Seconds], objective: Objective) -> None:
        self._times = times
        self._objective = objective

    def begin(self) -> Wait:
        times = self._times()
        order = np.sort(np.where(np.isnan(times), np.inf, times))
        return best_count(order[None], self._objective).wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        raise AssertionError("never asks to be asked again")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._objective.observe(came(seconds, censored, ended_s), ended_s)
