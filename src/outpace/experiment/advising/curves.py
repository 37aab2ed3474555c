"""Curves of trials: when one reaches its target, and when it can no longer win.

A score is a number of which more is better: the accuracy, or the training loss with a minus. What
counts is the best score so far, since a target is reached by the first evaluation that shows it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from outpace.support.estimates import TimeTo
from outpace.support.targets import Target

# A trial is stopped at this many times the time that the best one needed for the target.
MARGIN: Final = 1.3
# Or before, if it is this many times slower than the best one to the score that it has. Curves of
# strategies differ in shape: ASP may be far behind at half of the time, and be first at the end.
_HOPELESS: Final = 6.0
_FIRST: Final = 0.5  # share of the best time from which on that is judged
_FEW: Final = 5  # evaluations: fewer do not show that a run diverges

Ending = Literal["reached", "stopped", "end", "failed"]


def in_words(target: Target, score: float) -> str:
    """Return a score as a person reads it, such as `accuracy 0.95`."""
    return f"accuracy {score:.4g}" if target.accuracy is not None else f"loss {-score:.4g}"


@dataclass(frozen=True, slots=True)
class Curve:
    """The evaluations of a trial, as far as it went.

    Attributes:
        times_s: of the evaluations, in seconds of virtual time, increasing.
        scores: best score up to each of these times.
        ended: how the trial ended: `stopped` by its bound, `end` at its horizon or by itself.
        error: why it failed.
        cost_s: processor time that it took.
        last: the score of the last evaluation, which may be below the best.
        totals: `iterations` of a worker, and its virtual time by what it did, in seconds:
            `compute`, `communicate` and `wait`. Of a script, also the number of `parameters`.
    """

    times_s: tuple[float, ...]
    scores: tuple[float, ...]
    ended: Ending = "end"
    error: str | None = None
    cost_s: float = 0.0
    last: float = -math.inf
    totals: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(
        times_s: Sequence[float],
        scores: Sequence[float],
        ended: Ending = "end",
        error: str | None = None,
        cost_s: float = 0.0,
        totals: Mapping[str, float] | None = None,
    ) -> Curve:
        """Return the curve of evaluations with these scores."""
        best, so_far = -math.inf, []
        for score in scores:
            best = max(best, score)
            so_far.append(best)
        last = scores[-1] if scores else -math.inf
        return Curve(tuple(times_s), tuple(so_far), ended, error, cost_s, last, totals or {})

    @property
    def end_s(self) -> float:
        return self.times_s[-1] if self.times_s else 0.0

    @property
    def diverged(self) -> bool:
        """True if the run failed, or missed its target and lost half of what it had gained."""
        if self.ended in ("failed", "reached"):
            return self.ended == "failed"
        enough = len(self.scores) >= _FEW
        return enough and self.last <= (self.scores[0] + self.best) / 2

    @property
    def best(self) -> float:
        """The best score; minus infinity if the trial was never evaluated."""
        return self.scores[-1] if self.scores else -math.inf

    def first_s(self, score: float) -> float | None:
        """Return the time at which the curve reaches a score; None if it does not."""
        place = bisect_left(self.scores, score)
        return self.times_s[place] if place < len(self.scores) else None

    def crossing_s(self, score: float) -> float | None:
        """Return the time at which the curve crosses a score, interpolated; None if it does not."""
        place = bisect_left(self.scores, score)
        if place == len(self.scores):
            return None
        before, after = self.scores[max(0, place - 1)], self.scores[place]
        if place == 0 or after <= before:
            return self.times_s[place]
        start_s = self.times_s[place - 1]
        return start_s + (self.times_s[place] - start_s) * (score - before) / (after - before)

    def gap_s(self, score: float) -> float:
        """Return the time from the evaluation before to the first one that shows a score.

        A run can show a score at its evaluations only, so it shows it up to this much later than it
        has it. 0 if the curve does not reach the score.
        """
        place = bisect_left(self.scores, score)
        if place == len(self.scores):
            return 0.0
        return self.times_s[place] - (self.times_s[place - 1] if place else 0.0)

    def time_to(self, level: float) -> TimeTo:
        """Return the time to the target; of a trial that missed it, the time that it ran."""
        at = self.first_s(level)
        return TimeTo(self.end_s, False) if at is None else TimeTo(at, True)


@dataclass(frozen=True, slots=True)
class Bound:
    """When a trial is stopped: at its horizon, or when it can no longer win.

    A trial is compared with a reference curve that reached the target after T. It is stopped after
    MARGIN T; or after T/2 if it needed six times as long for its score as the reference did.

    Attributes:
        horizon_s: virtual time at which every trial ends.
        best: the reference; None: trials run to their horizon.
        level: score of the target.
    """

    horizon_s: float
    level: float
    best: Curve | None = None

    def stops(self, time_s: float, score: float) -> bool:
        """Return True if a trial must end that has this best score at this time.

        A trial that has reached the target is not the bound's concern.
        """
        if self.best is None:
            return False
        whole = self.best.crossing_s(self.level)
        if whole is None or whole <= 0:
            return False
        if time_s > MARGIN * whole:
            return True
        then = self.best.crossing_s(score)
        return time_s >= _FIRST * whole and then is not None and time_s > _HOPELESS * then


def projected_s(curve: Curve, level: float, best: Curve | None) -> float:
    """Return the time to the target, extrapolated for a curve that was stopped or missed it.

    Between evaluations it is interpolated. The extrapolation assumes that the trial needs the same
    multiple of the best one's time for the target as for the score that it has. It serves to rank
    trials, and is never reported.
    """
    at = curve.crossing_s(level)
    if at is not None:
        return at
    if curve.ended == "failed" or not curve.times_s:
        return math.inf
    whole = None if best is None else best.crossing_s(level)
    if best is None or whole is None:
        return math.inf
    then = best.crossing_s(curve.best)
    then = whole if then is None else then
    if then <= 0:
        return math.inf
    return max(curve.end_s, curve.end_s * whole / then)


@dataclass(frozen=True, slots=True)
class Trial:
    """A run that is ordered: a candidate with a learning rate and a seed.

    Attributes:
        candidate: its name.
        until_s: virtual time until which it continues after it has reached the target.
    """

    candidate: str
    rate: float
    seed: int
    bound: Bound = field(compare=False)
    until_s: float = field(default=0.0, compare=False)
