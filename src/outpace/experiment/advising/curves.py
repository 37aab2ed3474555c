"""Trials, and the curves of their evaluations.

A score is a number of which more is better: the accuracy, or the training loss with a minus. A
target is reached by the first evaluation that shows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from outpace.support.estimates import TimeTo
from outpace.support.targets import Target

SEARCH, FRESH = "search", "fresh seeds"  # parts of a study
_FEW: Final = 5  # evaluations: fewer do not show that a run diverges


def in_words(target: Target, score: float) -> str:
    """Return a score as a person reads it, such as `accuracy 0.95`."""
    return f"accuracy {score:.4g}" if target.accuracy is not None else f"loss {-score:.4g}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of a study: a candidate with a learning rate, on a seed.

    Attributes:
        part: of the study: SEARCH or FRESH.
        candidate: its name.
        limit_s: virtual time at which it ends: its horizon, or when it can no longer win.
        every_s: virtual time from one evaluation to the next; None: as configured.
    """

    part: str
    candidate: str
    rate: float
    seed: int
    limit_s: float = field(default=math.inf, compare=False)
    every_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Curve:
    """The evaluations of a trial, as far as it went.

    Attributes:
        times_s: of the evaluations, in seconds of virtual time, increasing.
        scores: at these times.
        error: why the trial failed; None if it did not.
        totals: `iterations` of a worker, and its virtual time by what it did, in seconds:
            `compute`, `communicate` and `wait`. Of a script, also the number of `parameters`.
    """

    times_s: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    error: str | None = None
    totals: Mapping[str, float] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        return self.times_s[-1] if self.times_s else 0.0

    @property
    def best(self) -> float:
        """The best score; minus infinity if the trial was never evaluated."""
        return max(self.scores, default=-math.inf)

    @property
    def last(self) -> float:
        return self.scores[-1] if self.scores else -math.inf

    def diverged(self, level: float) -> bool:
        """Return True if the run failed, or missed its target and lost half of what it gained."""
        if self.error is not None or self.best >= level or len(self.scores) < _FEW:
            return self.error is not None
        return self.last <= (self.scores[0] + self.best) / 2

    def crossing_s(self, level: float) -> float | None:
        """Return the time at which the curve crosses a score, interpolated; None if it does not."""
        place = self._first(level)
        if place is None or place == 0:
            return None if place is None else self.times_s[0]
        before, after = max(self.scores[:place]), self.scores[place]
        start_s = self.times_s[place - 1]
        return start_s + (self.times_s[place] - start_s) * (level - before) / (after - before)

    def gap_s(self, level: float) -> float:
        """Return the time from the evaluation before to the first one that shows a score.

        A run shows a score at its evaluations only, so up to this much later than it has it. 0 if
        the curve does not reach the score.
        """
        place = self._first(level)
        if place is None:
            return 0.0
        return self.times_s[place] - (self.times_s[place - 1] if place else 0.0)

    def time_to(self, level: float, limit_s: float) -> TimeTo:
        """Return the time to the target; of a trial that missed it, `limit_s`, a lower bound.

        A trial that failed, or a script that ended before, does not reach it later either.
        """
        place = self._first(level)
        return TimeTo(limit_s, False) if place is None else TimeTo(self.times_s[place], True)

    def shows_at_once(self, level: float) -> bool:
        """Return True if the first evaluation shows the score."""
        return self._first(level) == 0

    def _first(self, level: float) -> int | None:
        return next((k for k, score in enumerate(self.scores) if score >= level), None)
