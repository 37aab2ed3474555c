"""Rules without a model: the next iteration is expected to be like one of the last few."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import numpy as np

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions import Decision
from outpace.predict.rules.iteration import came
from outpace.predict.rules.objective import Objective

_REFUTED: Final = 0.25  # share of the expected workers; with fewer, the memory is out of date


class Rolling:
    """Decides from the last `iterations` as draws; the first iteration waits for all workers.

    When fewer than a quarter of the expected workers finish by the deadline, the remembered
    times are out of date: the rule forgets them and waits for all workers once. Otherwise every
    iteration of a cluster that becomes slower as a whole could end after its first gradient,
    because the other workers would never be observed to finish.

    averaged: True to use a single draw, the mean time of each worker.
    """

    def __init__(
        self, iterations: int, decision: Decision, objective: Objective, *, averaged: bool = False
    ) -> None:
        self._window = Window(iterations)
        self._decision = decision
        self._objective = objective
        self._averaged = averaged
        self._until_s = math.inf
        self._counted_on = 0.0  # gradients expected by the deadline

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
        raise AssertionError("this rule never asks for a review")

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._window.observe(seconds, censored)
        if self._is_refuted(seconds, censored, ended_s):
            self._window.forget()
        self._objective.observe(came(seconds, censored, ended_s), ended_s)

    def _is_refuted(self, seconds: Seconds, censored: Mask, ended_s: float) -> bool:
        """True if the iteration reached the deadline and too few workers had finished by then."""
        by_then = came(seconds, censored, self._until_s)
        return self._until_s <= ended_s and by_then < _REFUTED * self._counted_on


class Window:
    """The last iterations, with a guess where a worker was cut off.

    The guess is the worker's last uncensored time, or the time that it had computed if that is
    longer: the smallest time consistent with the observations. So a rule's count rises until
    the true times have been observed. Its deadline does not rise, because all workers seem to
    finish when the last iteration was cut off (see `Rolling`). A larger guess (`Guess`) would
    raise the deadline, and cost 3 to 4 points on clusters whose nodes become fast again. The
    time of an absent worker is infinite.
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
        """Forget all iterations."""
        self._rows.clear()

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def rows(self) -> Seconds:
        """Times in seconds, shape (iterations, N)."""
        return np.stack(self._rows)
