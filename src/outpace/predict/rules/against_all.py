"""Waits for all workers where a rule has turned out to be worse than that.

A rule that cuts off too often, because its model is wrong in a way that it cannot see, may lose
against waiting for all workers. So both are compared after each iteration, by the difference of
their Ω as a share of that of waiting for all, d. The evidence that the rule is worse is the mean,
over several scales s and stakes b, of the capital of a gambler who bets on it,

    C = max(C, 1) (1 - b clip(d / s, -1, 1)).

If the rule is not worse, that is, if in every iteration the expectation of clip(d / s, -1, 1) given
the past is not negative, then each factor has an expectation of at most 1. Then the mean time
until the evidence reaches L is at least L iterations: C is never more than the sum of the capitals
of gamblers who begin with 1 each in each iteration, and that sum grows by at most 1 per iteration
in the mean (Shin, Ramdas and Rinaldo, E-detectors, NEJSDS 2, 2024). So a rule that is not worse is
left wrongly once in L iterations at most, in the mean, and usually far less often: where cutting
off pays the capitals remain near 1. The way back is the same test, with the opposite sign.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.guess import Guess
from outpace.predict.rules.iteration import Ended, came, play

LIMIT: Final = 20  # L, iterations
# Scales and stakes: small losses that are frequent, and large ones that are rare.
_SCALES: Final = np.array([0.02, 0.02, 0.1, 0.1])
_STAKES: Final = np.array([0.5, 0.9, 0.5, 0.9])


class Evidence:
    """The evidence that differences are negative."""

    def __init__(self) -> None:
        self._capital = np.ones(len(_SCALES))

    def bet(self, difference: float) -> bool:
        """Add a difference; return True if the evidence has reached the limit."""
        factor = 1 - _STAKES * np.clip(difference / _SCALES, -1, 1)
        self._capital = np.maximum(self._capital, 1) * factor
        return bool(self._capital.mean() >= LIMIT)


class AgainstAll(Rule):
    """Follows a rule, unless the evidence is that waiting for all workers is better.

    While the rule is followed, the time of workers that were cut off is guessed (`Guess`). An
    iteration that was cut off later than any known time does not count, because there is no
    example of what lies beyond. While all are waited for, the result of the rule is known.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._guess, self._evidence = Guess(), Evidence()
        self._wait: Wait | None = None  # of the rule, once it has begun an iteration
        self.waits_for_all = False

    def begin(self) -> Wait:
        self._wait = self._rule.begin()
        return Wait() if self.waits_for_all else self._wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self._rule.review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        guessed = self._guess.observe(seconds, censored)
        if self._wait is not None and not self._guess.blind:
            self._compare(self._wait, guessed, censored, ended_s)
        self._wait = None
        self._rule.observe(seconds, censored, ended_s)

    def _compare(self, wait: Wait, times: Seconds, censored: Mask, ended_s: float) -> None:
        if self.waits_for_all:
            ended = play(self._rule, wait, times)
        else:
            ended = Ended(came(times, censored, ended_s), ended_s)
        for_all = np.count_nonzero(~np.isnan(times)) / float(np.nanmax(times))
        better = ended.count / ended.ended_s / for_all - 1
        if self._evidence.bet(-better if self.waits_for_all else better):
            self.waits_for_all = not self.waits_for_all
            self._evidence = Evidence()
