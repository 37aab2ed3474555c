"""Following whichever of several rules has done best lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.checks import require
from outpace.predict.interface import Rule, Wait
from outpace.predict.rules.iteration import Ended, came, play
from outpace.predict.rules.objective import Throughput
from outpace.runtimes.table import Mask, Seconds

_MEMORY: Final = 40  # iterations, after which a duel counts for 1/e
_PATIENCE: Final = (16, 128)  # iterations without knowing, at first and at most


class Hedge:
    """The leader decides; the others are asked too, and observe all.

    What another rule would have come to is worked out from the times that are known
    (`play`): exactly, if it would have ended no later than the leader did. If later, nothing
    is known of it in this iteration, and nothing is made up: a guess that flatters would
    have it followed, one that does not would have it forgotten. So rules are compared in
    pairs, over iterations in which both are known: the mean of log(Ω_i / Ω_j), with
    exponential forgetting. The leader is the rule whose worst duel is the best.

    Exploration: a rule that has not been known for 16 iterations leads one, and goes on
    while it does better than all others. Each time that it does not, it waits for twice as
    long as before, up to 128: with logarithmically many such iterations, and all shorter
    waits known in them, exploring stays below what it could gain.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        """In order of preference, as long as nothing is known."""
        require(len(rules) >= 1, "rules", "at least one", len(rules))
        self._rules = list(rules)
        n = len(rules)
        self._sums, self._weights = np.zeros((n, n)), np.zeros((n, n))
        self._unknown = np.zeros(n, dtype=np.int64)
        self._patience = np.full(n, _PATIENCE[0])
        self._explored: int | None = None
        self._leader = 0
        self._waits: list[Wait] = []

    @property
    def leader(self) -> int:
        """The place of the rule that decides this iteration."""
        return self._leader

    def begin(self) -> Wait:
        self._waits = [rule.begin() for rule in self._rules]
        self._leader = self._choose()
        return self._waits[self._leader]

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self._rules[self._leader].review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        if self._waits:  # not while somebody else decides, as in a warm-up
            self._compare(seconds, censored, ended_s)
            self._waits = []
        for rule in self._rules:
            rule.observe(seconds, censored, ended_s)

    def _compare(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        known_s = ended_s if censored.any() else np.inf
        times = np.where(censored, np.inf, seconds)
        ends = [
            Ended(came(seconds, censored, ended_s), ended_s)
            if place == self._leader
            else play(rule, wait, times, known_s)
            for place, (rule, wait) in enumerate(zip(self._rules, self._waits, strict=True))
        ]
        scores = np.array([np.nan if e is None else _log(e) for e in ends])
        known = ~np.isnan(scores)
        pairs = known[:, None] & known
        duels = np.where(pairs, scores[:, None] - scores, 0.0)
        keep = np.where(pairs, np.exp(-1 / _MEMORY), 1.0)
        self._sums = keep * self._sums + duels
        self._weights = keep * self._weights + pairs
        self._unknown = np.where(known, 0, self._unknown + 1)
        if self._explored is not None:
            self._judge(scores)

    def _judge(self, scores: Seconds) -> None:
        """Has exploring paid?"""
        place = self._explored
        assert place is not None
        others = np.delete(scores, place)
        if (scores[place] > others[~np.isnan(others)]).all():
            self._patience[place] = _PATIENCE[0]
        else:
            self._patience[place] = min(2 * self._patience[place], _PATIENCE[1])
            self._explored = None

    def _choose(self) -> int:
        if self._explored is None:
            overdue = np.flatnonzero(self._unknown >= self._patience)
            if len(overdue):
                self._explored = int(overdue[0])
        if self._explored is not None:
            return self._explored
        return int(self._worst_duels().argmax())

    def _worst_duels(self) -> Seconds:
        means: NDArray[np.float64] = self._sums / np.maximum(self._weights, 1e-9)
        return means.min(axis=1)


def _log(ended: Ended) -> float:
    return float(np.log(Throughput().score(ended.count, ended.ended_s)))
