"""Rules that take the next iteration for a draw from the last few: no model."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions.objective import Objective
from outpace.predict.rules.decisions.plan import Decision
from outpace.predict.rules.iteration import came
from outpace.predict.rules.window import Window

_REFUTED: Final = 0.25  # of those it counted on


class Rolling:
    """Decides from the last `iterations` as draws; before there are any it waits for all.

    When by its deadline fewer than a quarter of those come that it counted on, what it
    remembers is no longer true: it forgets it, and waits for all once. Else a cluster that
    slows down as a whole might be cut off for ever after its first gradient, as nobody else
    is heard of again.

    averaged: from one draw, every worker's mean time.
    """

    def __init__(
        self, iterations: int, decision: Decision, objective: Objective, *, averaged: bool = False
    ) -> None:
        self._window = Window(iterations)
        self._decision = decision
        self._objective = objective
        self._averaged = averaged
        self._until_s = math.inf
        self._counted_on = 0.0  # gradients by then

    def begin(self) -> Wait:
        self._until_s = math.inf
        if not self._window:
            return Wait()
        rows = self._window.rows
        if self._averaged:
            rows = rows.mean(axis=0, keepdims=True)
        wait = self._decision(np.sort(rows, axis=1), self._objective).wait
        self._until_s = wait.until_s
        self._counted_on = float(np.count_nonzero(rows <= wait.until_s)) / len(rows)
        return wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        raise AssertionError("never asks to be asked again")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._window.observe(seconds, censored)
        if self._is_refuted(seconds, censored, ended_s):
            self._window.forget()
        self._objective.observe(came(seconds, censored, ended_s), ended_s)

    def _is_refuted(self, seconds: Seconds, censored: Mask, ended_s: float) -> bool:
        """Known only if somebody waited until the deadline."""
        by_then = came(seconds, censored, self._until_s)
        return self._until_s <= ended_s and by_then < _REFUTED * self._counted_on
