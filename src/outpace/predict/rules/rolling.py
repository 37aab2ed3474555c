"""Rules without a model: the next iteration is expected to be like one of the last few."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions import Decision, Objective
from outpace.predict.rules.iteration import came

_REFUTED: Final = 0.25  # share of the expected workers; with fewer, the memory is out of date


@dataclass
class Rolling(Rule):
    """Decides from the last `iterations` as draws; the first iteration waits for all workers.

    A worker that was cut off counts with its last uncensored time, or the cut-off if that is
    later: the smallest time consistent with the observations. So the count
    rises until the true times have been observed. A larger guess (`guess.Guess`) would raise the
    deadline, and cost 3 to 4 points on clusters whose nodes become fast again. The time of an
    absent worker is infinite.

    The deadline does not rise in this way, because all workers seem to finish when the last
    iteration was cut off. Therefore, when fewer than a quarter of the expected workers finish by
    the deadline, the rule forgets the remembered times and waits for all workers once. Otherwise
    every iteration of a cluster that becomes slower as a whole could end after its first
    gradient, because the other workers would never be observed to finish.

    averaged: True to use a single draw, the mean time of each worker.
    """

    iterations: int
    decision: Decision
    objective: Objective
    averaged: bool = False
    _last: Seconds | None = field(default=None, init=False)  # uncensored times
    _until_s: float = field(default=math.inf, init=False)
    _counted_on: float = field(default=0.0, init=False)  # gradients expected by the deadline

    def __post_init__(self) -> None:
        self._rows: deque[Seconds] = deque(maxlen=self.iterations)

    def begin(self) -> Wait:
        self._until_s = math.inf
        if not self._rows:
            return Wait()
        rows = np.stack(self._rows)
        if self.averaged:
            rows = rows.mean(axis=0, keepdims=True)
        wait = self.decision(np.sort(rows, axis=1), self.objective).wait
        self._until_s = wait.until_s
        self._counted_on = float(np.count_nonzero(rows <= wait.until_s)) / len(rows)
        return wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        last = np.zeros_like(seconds) if self._last is None else self._last
        row = np.where(censored, np.maximum(seconds, last), seconds)
        self._rows.append(np.where(np.isnan(row), math.inf, row))
        self._last = np.where(~censored & ~np.isnan(seconds), seconds, last)
        by_then = came(seconds, censored, self._until_s)
        if self._until_s <= ended_s and by_then < _REFUTED * self._counted_on:
            self._rows.clear()
        self.objective.observe(came(seconds, censored, ended_s), ended_s)
