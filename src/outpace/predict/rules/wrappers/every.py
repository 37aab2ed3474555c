"""Deciding once for several iterations, where a decision takes about as long as one of them."""

from __future__ import annotations

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.support.checks import require


class Every:
    """Asks the rule in every k-th iteration; the others wait as that one began.

    The rule must not ask to be asked again: what came of it would hold for one iteration.
    """

    def __init__(self, rule: Rule, iterations: int) -> None:
        require(iterations >= 1, "every", "at least 1", iterations)
        self._rule = rule
        self._iterations = iterations
        self._left = 0
        self._wait = Wait()

    def begin(self) -> Wait:
        if not self._left:
            self._wait = self._rule.begin()
            self._left = self._iterations
        self._left -= 1
        return self._wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self._rule.review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._rule.observe(seconds, censored, ended_s)
