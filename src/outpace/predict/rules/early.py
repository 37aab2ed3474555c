"""A rule without a model: a deadline relative to an early arrival of the same iteration."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions import Decision, Objective
from outpace.predict.rules.guess import Guess
from outpace.predict.rules.iteration import came

_EARLY: Final = 0.25  # share of the workers after whose arrival the rule decides
_LATER: Final = 1.005  # the deadline is so many times as late as would have been best


@dataclass
class Early(Rule):
    """Waits for a quarter of the workers, then decides from the last iterations' relative times.

    A time is taken relative to the arrival of the first quarter in its iteration. So what all
    workers have in common, such as longer samples or a smaller batch, changes nothing: only how
    far the workers are apart is expected to be as in the last `iterations`. Their relative times
    times the arrival of the first quarter are the draws of the decision.

    A worker that was cut off counts with a guess (`Guess`): its time is known to be longer, and a
    deadline that took the bound for the time would find all workers at the deadline and stay
    there. Because guesses need examples, the deadline is 0.5 % later than would have been best:
    workers that arrive just after the best deadline are then observed. Without that the rule
    would cut off a little sooner each time, on average.

    The first iteration waits for all workers.

    Args:
        iterations: the number of iterations that it decides from.
        decision: how it decides (`decisions`).
        every: number of iterations for which a decision holds, relative to the early arrival.
    """

    iterations: int
    decision: Decision
    objective: Objective
    every: int = 1
    _guess: Guess = field(default_factory=Guess, init=False)
    _workers: int = field(default=0, init=False)  # that were there in the last iteration
    _held: Wait = field(default=Wait(), init=False)  # relative to the early arrival
    _left: int = field(default=0, init=False)  # iterations for which it is held

    def __post_init__(self) -> None:
        self._rows: deque[Seconds] = deque(maxlen=self.iterations)  # relative, ascending

    def begin(self) -> Wait:
        if not self._rows:
            return Wait()
        self._left = (self._left or self.every) - 1
        return Wait(again_count=self._early)

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        here = int(np.count_nonzero(~np.isnan(arrived)))
        first_s = float(np.sort(arrived)[min(here, self._early) - 1])  # NaN last
        if self._left == self.every - 1:
            self._held = self._decided(here, first_s)
        return Wait(self._held.count, self._held.until_s * first_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        there = ~np.isnan(seconds)
        self._workers = int(np.count_nonzero(there))
        row = np.sort(self._guess.observe(seconds, censored))  # NaN last
        self._rows.append(np.where(np.isnan(row), math.inf, row) / row[self._early - 1])
        self.objective.observe(came(seconds, censored, ended_s), ended_s)

    @property
    def _early(self) -> int:
        return math.ceil(_EARLY * self._workers)

    def _decided(self, here: int, first_s: float) -> Wait:
        """Return the best wait, with a deadline relative to the early arrival."""
        draws = np.stack(self._rows) * first_s
        plan = self.decision(draws, self.objective)
        return Wait(max(plan.count, here), max(1.0, _LATER * plan.until_s / first_s))
