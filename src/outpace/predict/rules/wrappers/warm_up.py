"""Waiting for all while a model or a window has seen too little."""

from __future__ import annotations

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.support.checks import require


class WarmUp:
    """The first so many iterations wait for all; the rule observes them too, and then decides."""

    def __init__(self, rule: Rule, iterations: int) -> None:
        require(iterations >= 0, "warmup", "at least 0", iterations)
        self._rule = rule
        self._left = iterations

    def begin(self) -> Wait:
        return Wait() if self._left else self._rule.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self._rule.review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._left = max(0, self._left - 1)
        self._rule.observe(seconds, censored, ended_s)
