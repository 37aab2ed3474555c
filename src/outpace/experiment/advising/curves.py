"""Trials, and the curves of their evaluations.

A score is a number for which larger is better: the accuracy, or the negative training loss. A
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
_FEW: Final = 5  # number of evaluations below which a run cannot be judged as diverging


def in_words(target: Target, score: float) -> str:
    """Return a score as text, such as `accuracy 0.95`."""
    return f"accuracy {score:.4g}" if target.accuracy is not None else f"loss {-score:.4g}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of a study: a candidate with a learning rate, on a seed.

    Attributes:
        part: the part of the study: SEARCH or FRESH.
        candidate: name of the candidate.
        limit_s: virtual time at which the trial ends: its horizon, or the time when it can no
            longer win.
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
    """The evaluations of a trial until its end.

    Attributes:
        times_s: times of the evaluations, in seconds of virtual time, increasing.
        scores: scores at these times.
        error: why the trial failed; None if it did not.
        totals: number of `iterations` of a worker, and its virtual time by activity, in seconds:
            `compute`, `communicate` and `wait`. For a script, also the number of `parameters`.
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
        """Return True if the run failed, or missed its target and lost half of its gain."""
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
        """Return the time from the previous evaluation to the first one that reaches a score.

        A run shows a score only at its evaluations, so it may have reached the score up to this
        much earlier. 0 if the curve does not reach the score.
        """
        place = self._first(level)
        if place is None:
            return 0.0
        return self.times_s[place] - (self.times_s[place - 1] if place else 0.0)

    def time_to(self, level: float, limit_s: float) -> TimeTo:
        """Return the time to the target; for a trial that missed it, the lower bound `limit_s`.

        A trial that failed, or a script that ended before, counts in the same way, since it would
        not reach the target later.
        """
        place = self._first(level)
        return TimeTo(limit_s, False) if place is None else TimeTo(self.times_s[place], True)

    def shows_at_once(self, level: float) -> bool:
        """Return True if the first evaluation shows the score."""
        return self._first(level) == 0

    def _first(self, level: float) -> int | None:
        return next((k for k, score in enumerate(self.scores) if score >= level), None)
