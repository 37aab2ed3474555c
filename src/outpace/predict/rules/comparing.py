"""Compares rules by what they would have done, and uses the best of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded import Mask, Seconds
from outpace.predict.replay import Ended, came, play
from outpace.predict.rules.baselines import Guess

_MEMORY: Final = 40  # iterations after which a comparison has weight 1/e
# A rule whose results have only been guessed is tried after a number of iterations for which the
# trial costs the share _EXPLORING of the throughput. This number is from _SOONEST to _LATEST; it is
# larger only if the trial would cost more than the share _AT_MOST.
_SOONEST: Final = 8
_LATEST: Final = 128
_EXPLORING: Final = 5e-4
_AT_MOST: Final = 2e-3
_AGAIN: Final = 10**9
_DOUBT: Final = 1.0  # standard errors by which a rule must be ahead of a preferred one


class Hedge(Rule):
    """Uses the decisions of a leading rule, and compares all rules after each iteration.

    `play` computes the result of another rule from the observed times: exactly if the rule would
    have ended no later than the leader, otherwise with times from `Guess` for workers that were cut
    off. Without guesses, rules would be compared only in iterations in which the longer wait
    happened to be short. (A guess cannot distinguish counts that differ by one if the next worker
    comes much later.) Rules are compared in pairs by the mean of Ω_i − Ω_j, with exponential
    forgetting. The leader is the rule whose worst comparison is best. If the first rule is
    preferred, another rule must be ahead of it by more than a standard error of the mean. Otherwise
    a good model would lead in only half of the iterations, since rules that differ by one percent
    on average differ by more in a single iteration.

    During the warm-up the rule waits for all workers, so the result of every rule is known; rules
    are compared in its second half. After the warm-up, a rule whose results have only been guessed
    for long leads one iteration, and keeps leading as long as it beats the others. The closer a
    rule is to the leader, the sooner it leads: after 20 iterations if it is 1 % worse, 100 if 5 %,
    and at most 128 unless it is more than 25 % worse. So exploring costs about 0.05 % of the
    throughput per rule, and at most 0.2 % for a very bad rule.
    """

    def __init__(
        self, rules: Sequence[Rule], *, warmup: int = 20, prefers_first: bool = False
    ) -> None:
        """Compare these rules, given in the order of preference while nothing is known.

        `begin` of each rule must work after half of the warm-up. prefers_first: True: the first
        rule is preferred later as well.
        """
        self._rules = list(rules)
        n = len(rules)
        # With forgetting: the sums and sums of squares of the differences; the sums of the weights
        # and of their squares.
        self._sums, self._squares = np.zeros((n, n)), np.zeros((n, n))
        self._weight, self._weights_squared = 0.0, 0.0
        self._doubt = _DOUBT if prefers_first else 0.0
        self._unknown = np.zeros(n, dtype=np.int64)
        self._level = 0.0  # approximate throughput of the leader
        self._warmup = self._left = warmup
        self.leader: int | None = None  # decides this iteration; None in the warm-up
        self._exploring = False
        self._waits: list[Wait] = []
        self._guess = Guess()

    def begin(self) -> Wait:
        if 2 * self._left <= self._warmup:
            self._waits = [rule.begin() for rule in self._rules]
        if self._left:
            return Wait()
        self.leader = self._choose()
        return self._waits[self.leader]

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        assert self.leader is not None, "no rule has asked for a review"
        return self._rules[self.leader].review(arrived, elapsed_s)

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
            if place == self.leader
            else play(rule, wait, times)
            for place, (rule, wait) in enumerate(zip(self._rules, self._waits, strict=True))
        ]
        scores = np.array([end.count / end.ended_s for end in ends])
        self._level = float(scores.max() if self.leader is None else scores[self.leader])
        keep = math.exp(-1 / _MEMORY)
        differences = scores[:, None] - scores
        self._sums = keep * self._sums + differences
        self._squares = keep * self._squares + differences**2
        self._weight = keep * self._weight + 1
        self._weights_squared = keep**2 * self._weights_squared + 1
        guessed = censored.any() & np.array([end.ended_s > ended_s for end in ends])
        self._unknown = np.where(guessed, self._unknown + 1, 0)
        if self._exploring and scores[self.leader] >= scores.max():
            self._unknown[self.leader] = _AGAIN

    def _choose(self) -> int:
        means = self._sums / max(self._weight, 1)
        judged = means.copy()
        margins = self._doubt * self._errors(means[0])
        judged[0] += margins
        judged[:, 0] -= margins
        best = int(judged.min(axis=1).argmax())
        behind = (means[best] / self._level).clip(0) if self._level else np.zeros(len(self._rules))
        latest = np.maximum(_LATEST, behind / _AT_MOST)
        overdue = self._unknown >= (behind / _EXPLORING).clip(_SOONEST, latest)
        overdue[best] = False
        self._exploring = bool(overdue.any())
        return int(overdue.argmax()) if self._exploring else best

    def _errors(self, means: Seconds) -> Seconds:
        """Return the standard errors of these means, the first rule's comparisons."""
        if not self._weight:
            return np.zeros(len(means))
        variances = (self._squares[0] / self._weight - means**2).clip(0)
        errors: Seconds = np.sqrt(variances * self._weights_squared) / self._weight
        return errors
