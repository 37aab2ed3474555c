"""Rules that wrap another rule: a warm-up, decisions kept for a while, a fallback."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds


@dataclass
class WarmUp(Rule):
    """Waits for all workers while iterations are `left`, then lets the rule decide.

    The rule observes the first iterations, too.
    """

    rule: Rule
    left: int

    def begin(self) -> Wait:
        return Wait() if self.left else self.rule.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self.rule.review(arrived, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self.left = max(0, self.left - 1)
        self.rule.observe(seconds, censored, ended_s)


@dataclass
class Every(Rule):
    """Asks the rule in every k-th iteration and repeats its answer in the others.

    For a rule whose decision takes about as long as an iteration. The rule must not ask for
    reviews, because a review holds for one iteration only.
    """

    rule: Rule
    iterations: int
    _left: int = field(default=0, init=False)
    _wait: Wait = field(default=Wait(), init=False)

    def begin(self) -> Wait:
        if not self._left:
            self._wait = self.rule.begin()
            self._left = self.iterations
        self._left -= 1
        return self._wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self.rule.observe(seconds, censored, ended_s)


_T = TypeVar("_T")
_LATE: Final = 3  # iterations in a row: one late iteration may be due to the host


@dataclass
class Fallback(Rule):
    """Follows `rule` until it raises, or is late three iterations in a row; then `other`.

    The rule is late if observing an iteration and beginning the next takes longer than the
    first gradient took to arrive. A late answer is still used.

    Args:
        other: observes every iteration; its `begin` must work at any time.
        say: called once, with the reason, when `other` takes over.
        clock: returns seconds; without a clock the rule is never late.
    """

    rule: Rule | None
    other: Rule
    say: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = lambda: 0.0
    _late: int = field(default=0, init=False)  # iterations
    _spent_s: float = field(default=0.0, init=False)
    _first_s: float = field(default=math.inf, init=False)

    def begin(self) -> Wait:
        answer = self._first(lambda rule: rule.begin())
        self._late = self._late + 1 if self._spent_s > self._first_s else 0
        if self._late == _LATE:
            self._leave(
                f"{_LATE} iterations in a row it was not ready when the first gradient came; the "
                f"last time it took {1e3 * self._spent_s:.0f} ms"
            )
        return answer or self.other.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        answer = self._first(lambda rule: rule.review(arrived, elapsed_s))
        # `other` may be asked in the middle of an iteration that it has not begun.
        return answer or self.other.begin()

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._spent_s = 0.0  # reviews are not counted, because they have their own budget
        self._first_s = float(np.nanmin(seconds, initial=math.inf, where=~censored))
        self.other.observe(seconds, censored, ended_s)
        self._first(lambda rule: rule.observe(seconds, censored, ended_s))

    def _first(self, ask: Callable[[Rule], _T]) -> _T | None:
        if self.rule is None:
            return None
        start = self.clock()
        try:
            answer = ask(self.rule)
        except Exception as error:
            self._leave(f"it failed: {type(error).__name__}: {error}")
            return None
        self._spent_s += self.clock() - start
        return answer

    def _leave(self, why: str) -> None:
        self.rule = None
        self._late = 0
        self.say(f"the cut-off rule is replaced by the rule of the last iterations: {why}")
