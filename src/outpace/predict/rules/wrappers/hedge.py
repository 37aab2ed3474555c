"""Following whichever of several rules has done best lately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.guess import Guess
from outpace.predict.rules.iteration import Ended, came, play
from outpace.support.checks import require

_MEMORY: Final = 40  # iterations, after which a duel counts for 1/e
# How long a rule may be unknown before it is tried, in iterations, and what trying it may cost,
# as a share of the throughput: up to _LATEST, and beyond.
_SOONEST: Final = 8
_LATEST: Final = 128
_EXPLORING: Final = 5e-4
_AT_MOST: Final = 2e-3
_AGAIN: Final = 10**9


class Hedge:
    """The leader decides; the others are asked too, and observe all.

    What another rule would have come to is worked out from the times (`play`): exactly, if it
    would have ended no later than the leader did; if later, with times for those cut off as
    `Guess` has them. To leave such iterations out would be to compare the rules where
    the longer wait happened to be short. (A guess cannot tell counts apart that differ by one,
    where the next one comes much later.) Rules are compared in pairs: the mean of Ω_i − Ω_j,
    with exponential forgetting. The leader is the rule whose worst duel is the best.

    While the first iterations wait for all, what a rule would have done is known; the rules
    are compared in the later half of them. After that a rule that has long been guessed at
    leads one iteration, the sooner the closer it is to the leader: one that is 5 % worse
    after 100 iterations, one that is 1 % worse after 20, any after 128
    unless it is more than 25 % worse; and goes on as long as it does better than the others.
    So exploring costs 0.05 % for each rule, at most 0.2 % for a very bad one.
    """

    def __init__(self, rules: Sequence[Rule], *, warmup: int = 20) -> None:
        """rules: in order of preference, as long as nothing is known. Those that need to have
        observed something must do with half of the warm-up."""
        require(len(rules) >= 1, "rules", "at least one", len(rules))
        require(warmup >= 0, "warmup", "at least 0", warmup)
        self._rules = list(rules)
        n = len(rules)
        self._sums, self._weight = np.zeros((n, n)), 0.0
        self._unknown = np.zeros(n, dtype=np.int64)
        self._level = 0.0  # the leader's throughput, about
        self._warmup = self._left = warmup
        self._leader: int | None = None
        self._exploring = False
        self._waits: list[Wait] = []
        self._guess = Guess()

    @property
    def leader(self) -> int | None:
        """The place of the rule that decides this iteration; None: all are waited for."""
        return self._leader

    def begin(self) -> Wait:
        if 2 * self._left <= self._warmup:
            self._waits = [rule.begin() for rule in self._rules]
        if self._left:
            return Wait()
        self._leader = self._choose()
        return self._waits[self._leader]

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        assert self._leader is not None, "nobody has asked to be asked again"
        return self._rules[self._leader].review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        guessed = self._guess.observe(seconds, censored)
        if self._waits:
            self._compare(guessed, censored, ended_s)
        self._waits = []
        self._left = max(0, self._left - 1)
        for rule in self._rules:
            rule.observe(seconds, censored, ended_s)

    def _compare(self, times: Seconds, censored: Mask, ended_s: float) -> None:
        ends = [
            Ended(came(times, censored, ended_s), ended_s)
            if place == self._leader
            else play(rule, wait, times)
            for place, (rule, wait) in enumerate(zip(self._rules, self._waits, strict=True))
        ]
        scores = np.array([end.count / end.ended_s for end in ends])
        self._level = float(scores.max() if self._leader is None else scores[self._leader])
        keep = math.exp(-1 / _MEMORY)
        self._sums = keep * self._sums + scores[:, None] - scores
        self._weight = keep * self._weight + 1
        guessed = censored.any() & np.array([end.ended_s > ended_s for end in ends])
        self._unknown = np.where(guessed, self._unknown + 1, 0)
        if self._exploring and scores[self._leader] >= scores.max():
            self._unknown[self._leader] = _AGAIN

    def _choose(self) -> int:
        means = self._sums / max(self._weight, 1)
        best = int(means.min(axis=1).argmax())
        behind = (means[best] / self._level).clip(0) if self._level else np.zeros(len(self._rules))
        latest = np.maximum(_LATEST, behind / _AT_MOST)
        overdue = self._unknown >= (behind / _EXPLORING).clip(_SOONEST, latest)
        overdue[best] = False
        self._exploring = bool(overdue.any())
        return int(overdue.argmax()) if self._exploring else best
