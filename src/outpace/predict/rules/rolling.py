"""Rules that take the next iteration for a draw from the last few: no model."""

from __future__ import annotations

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.rules.iteration import came
from outpace.predict.rules.objective import Objective
from outpace.predict.rules.plan import Decision
from outpace.predict.rules.window import Window
from outpace.runtimes.table import Mask, Seconds


class Rolling:
    """Decides from the last `iterations` as draws; before there are any it waits for all.

    averaged: from one draw, every worker's mean time.
    """

    def __init__(
        self, iterations: int, decision: Decision, objective: Objective, *, averaged: bool = False
    ) -> None:
        self._window = Window(iterations)
        self._decision = decision
        self._objective = objective
        self._averaged = averaged

    def begin(self) -> Wait:
        if not self._window:
            return Wait()
        rows = self._window.rows
        if self._averaged:
            rows = rows.mean(axis=0, keepdims=True)
        return self._decision(np.sort(rows, axis=1), self._objective).wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        raise AssertionError("never asks to be asked again")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._window.observe(seconds, censored)
        self._objective.observe(came(seconds, censored, ended_s), ended_s)
