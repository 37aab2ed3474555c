"""A rule that stands in for one that fails or is late."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds

_T = TypeVar("_T")
_LATE: Final = 3  # iterations running: a single one may be the host's fault


class Fallback:
    """Follows `rule` until it raises, or three iterations running it is late; then `other`.

    It is late if it takes longer by `clock`, to observe an iteration and to begin the next,
    than the first gradient took to come; the answer is used all the same. Without a clock
    it never is. say: told once, in words, why. `other` observes everything, and must be
    able to begin at any time.
    """

    def __init__(
        self,
        rule: Rule,
        other: Rule,
        *,
        say: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._rule: Rule | None = rule
        self._other = other
        self._say = say
        self._clock = clock
        self._late = 0
        self._spent_s = 0.0
        self._first_s = math.inf

    def begin(self) -> Wait:
        answer = self._first(lambda rule: rule.begin())
        self._late = self._late + 1 if self._spent_s > self._first_s else 0
        if self._late == _LATE:
            self._leave(
                f"{_LATE} iterations running it was not ready when the first gradient came, at "
                f"last it took {1e3 * self._spent_s:.0f} ms"
            )
        return answer or self._other.begin()

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        answer = self._first(lambda rule: rule.review(arrived, elapsed_s))
        # The other one may be asked in the midst of an iteration that it has not begun.
        return answer or self._other.begin()

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._spent_s = 0.0  # reviews have a budget of their own
        self._first_s = float(np.nanmin(seconds, initial=math.inf, where=~censored))
        self._other.observe(seconds, censored, ended_s)
        self._first(lambda rule: rule.observe(seconds, censored, ended_s))

    def _first(self, ask: Callable[[Rule], _T]) -> _T | None:
        if self._rule is None:
            return None
        start = self._clock()
        try:
            answer = ask(self._rule)
        except Exception as error:
            self._leave(f"it failed: {type(error).__name__}: {error}")
            return None
        self._spent_s += self._clock() - start
        return answer

    def _leave(self, why: str) -> None:
        self._rule = None
        self._late = 0
        self._say(f"the cut-off rule is given up for that of the last iterations: {why}")
