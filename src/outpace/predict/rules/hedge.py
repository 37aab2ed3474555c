"""Follows the one of several rules that has done best lately."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.iteration import Ended, came, play
from outpace.support.checks import require

_WHOLE: Final = 20  # iterations without a cut-off whose times are remembered
_FAST: Final = 0.2  # times are taken relative to this quantile of their iteration


class Guess:
    """How long workers that were cut off would have taken.

    The workers are spread over the times, relative to the fast workers of their iteration,
    that were longer than they computed, in the last 20 iterations without a cut-off (perhaps
    those of the warm-up). They are ordered by their last known times, and none takes less than
    its own. If no time was longer, they are taken to have been about to come.
    """

    def __init__(self) -> None:
        self._whole: deque[Seconds] = deque(maxlen=_WHOLE)
        self._relative = np.zeros(0)  # ascending
        self._last: Seconds | None = None  # uncensored times

    def observe(self, seconds: Seconds, censored: Mask) -> Seconds:
        """Return the iteration's times with the guesses, shape (N,); NaN: absent."""
        there = ~np.isnan(seconds)
        last = np.zeros_like(seconds) if self._last is None else self._last
        self._last = np.where(there & ~censored, seconds, last)
        known = np.sort(seconds[there])
        fast = known[int(_FAST * (len(known) - 1))]
        if not censored.any():
            self._whole.append(known / fast)
            self._relative = np.zeros(0)
            return seconds
        if self._whole and not len(self._relative):
            self._relative = np.sort(np.concatenate(self._whole))
        cut = np.flatnonzero(censored)
        cut = cut[np.argsort(last[cut], kind="stable")]
        row = seconds.copy()
        row[cut] = np.maximum(fast * self._spread(seconds[cut] / fast), seconds[cut])
        return np.where(censored, np.maximum(row, last), row)

    def _spread(self, bound: Seconds) -> Seconds:
        """Return times spread evenly over those above each bound, or the bound if there is none."""
        place = np.searchsorted(self._relative, bound, "right")
        beyond = len(self._relative) - place
        level = (np.arange(len(bound)) + 0.5) / len(bound)
        longer = np.append(self._relative, np.inf)[place + (level * beyond).astype(np.int64)]
        return np.where(beyond > 0, longer, bound)


_MEMORY: Final = 40  # iterations after which a comparison counts for 1/e
# Iterations after which a rule that is only guessed at is tried, and what trying it may cost, as a
# share of the throughput: up to _LATEST, and beyond.
_SOONEST: Final = 8
_LATEST: Final = 128
_EXPLORING: Final = 5e-4
_AT_MOST: Final = 2e-3
_AGAIN: Final = 10**9


class Hedge:
    """The leader decides; the other rules are asked too, and observe everything.

    What another rule would have achieved is computed from the times (`play`): exactly if it
    would have ended no later than the leader did; otherwise with times from `Guess` for
    workers that were cut off. Without such iterations the rules would be compared only where
    the longer wait happened to be short. (A guess cannot distinguish counts that differ by one
    where the next worker comes much later.) Rules are compared in pairs by the mean of
    Ω_i − Ω_j, with exponential forgetting. The leader is the rule whose worst comparison is best.

    While the first iterations wait for all workers, what a rule would have done is known; the
    rules are compared in the later half of them. After that, a rule that has long been guessed
    at leads one iteration, and goes on as long as it does better than the others. It leads the
    sooner the closer it is to the leader: after 20 iterations if it is 1 % worse, after 100 if
    5 %, after 128 at most unless it is more than 25 % worse. So exploring costs 0.05 % for each
    rule, and at most 0.2 % for a very bad one.
    """

    def __init__(self, rules: Sequence[Rule], *, warmup: int = 20) -> None:
        """rules: ordered by preference while nothing is known. Each must be able to begin after
        half of the warm-up."""
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
        """The index of the rule that decides this iteration; None: it waits for all workers."""
        return self._leader

    def begin(self) -> Wait:
        if 2 * self._left <= self._warmup:
            self._waits = [rule.begin() for rule in self._rules]
        if self._left:
            return Wait()
        self._leader = self._choose()
        return self._waits[self._leader]

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        assert self._leader is not None, "no rule has asked for a review"
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
