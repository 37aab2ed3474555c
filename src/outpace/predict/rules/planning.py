"""Rules that decide from a model's predictions, and the choice of a plan from draws."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from outpace.predict.interface import Filter, Prediction, Rule, Wait
from outpace.predict.recorded import Mask, Seconds

_DIGITS: Final = 10  # relative difference of scores that count as equal
_TIMES: Final = 20_000  # candidates for a deadline; more would not change the score noticeably
_CANDIDATES: Final = 40  # number of candidates for the count, and for the deadline, of a pair
_SHARE: Final = 0.05  # largest share of an iteration's time spent on reviews
_COSTS: Final = 5  # the cost is the median of the last 5 predictions
_LEVELS: Final = (0.1, 0.5, 0.9)  # reviews take place at these quantiles of the draws' best ends


@dataclass(frozen=True, slots=True)
class CutOffPlan:
    """A number of workers, a deadline (s) or both; `score`: mean Ω = n / s over the draws."""

    score: float
    count: float = math.inf
    until_s: float = math.inf

    @property
    def wait(self) -> Wait:
        return Wait(count=self.count, until_s=self.until_s)


# Called with draws of one iteration's run times, shape (K, N), each row ascending, in seconds.
Decision: TypeAlias = Callable[[Seconds], CutOffPlan]


def settled(time_s: float) -> float:
    """Return a time rounded up to six digits, since later digits depend on the processor."""
    if not 0.0 < time_s < math.inf:
        return time_s
    unit = 10.0 ** (math.floor(math.log10(time_s)) - 5)
    # A worker that arrives exactly at this time is waited for, so the time itself is the least.
    return max(time_s, math.ceil(time_s / unit * (1.0 - 1e-9)) * unit)


def _first_best(scores: Seconds) -> int:
    """Return the place of the first of the best scores that differ only by rounding."""
    largest = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)) or 1.0
    return int(np.round(scores / largest, _DIGITS).argmax())


def best_count(draws: Seconds, *, beyond: int = 0) -> CutOffPlan:
    """Return the count c above `beyond` with the largest E[c / x_(c)] (BDSGD, section 3)."""
    counts = np.arange(beyond + 1, draws.shape[1] + 1)
    scores = (counts / draws[:, beyond:]).mean(axis=0)
    best = _first_best(scores)
    return CutOffPlan(float(scores[best]), count=float(counts[best]))


def best_deadline(draws: Seconds, *, after_s: float = 0.0) -> CutOffPlan:
    """Return the time s with the largest E[n(s) / s], where n(s) workers have finished by then.

    Candidates are the draws' times after `after_s`, because the score only falls between two of
    them. The time of a worker that will not finish is inf. As defined by `Wait`, a draw ends at its
    first arrival if s is earlier, and at its last arrival if s is later; its score is then known.
    The scores of the other draws come from one pass over all sorted times.
    """
    workers = draws.shape[1]
    pooled = np.sort(draws, axis=None)
    low = int(np.searchsorted(pooled, after_s, "right"))
    high = int(np.searchsorted(pooled, np.inf))
    step = 1 + (high - low) // _TIMES
    times = pooled[low:high:step]
    if not len(times):
        return CutOffPlan(-np.inf)
    arrivals = np.arange(low + 1, high + 1, step)

    firsts, lasts = draws[:, 0], draws[:, -1]
    waiting_score = (1 / firsts).sum() - _sums(times, firsts, 1 / firsts)
    done, done_score = _sums(times, lasts), _sums(times, lasts, workers / lasts)
    open_score = (arrivals - workers * done) / times
    scores = (waiting_score + done_score + open_score) / len(draws)
    best = _first_best(scores)
    return CutOffPlan(float(scores[best]), until_s=float(times[best]))


def _sums(times: Seconds, events: Seconds, values: Seconds | None = None) -> Seconds:
    """Return the sum of the events' values (or the number of events) up to each time, ascending."""
    place = np.searchsorted(times, events)
    found: Seconds = np.bincount(place, values, minlength=len(times) + 1)[:-1].cumsum()
    return found


def best_count_or_deadline(draws: Seconds, *, beyond: int = 0, after_s: float = 0.0) -> CutOffPlan:
    """Return the best count above `beyond` and deadline after `after_s`, whichever comes first.

    Candidates for the pair are the best end of each draw (`_best_ends`), the best count and the
    best deadline. The best count alone and the best deadline alone are also candidates.
    """
    count, deadline = best_count(draws, beyond=beyond), best_deadline(draws, after_s=after_s)
    counts, times = _best_ends(draws, beyond)
    counts = _few(np.append(counts, int(count.count)))
    times = _few(np.append(times[times > after_s], deadline.until_s))
    plans = count, deadline, _best_pair(draws, counts, times[np.isfinite(times)])
    return plans[_first_best(np.array([plan.score for plan in plans]))]


def _best_ends(draws: Seconds, beyond: int = 0) -> tuple[NDArray[np.int64], Seconds]:
    """Return, for each draw, the count and the time with the best score."""
    scores = np.arange(beyond + 1, draws.shape[1] + 1) / draws[:, beyond:]
    places = beyond + scores.argmax(axis=1)
    return places + 1, draws[np.arange(len(draws)), places]


def _best_pair(draws: Seconds, counts: NDArray[np.int64], times: Seconds) -> CutOffPlan:
    if not len(times):
        return CutOffPlan(-np.inf)
    by_then = np.stack([row.searchsorted(times, "right") for row in draws]).clip(1)  # (K, S)
    ends = np.maximum(times, draws[:, :1])  # a draw never ends before its first arrival
    late, early = by_then / ends, counts / draws[:, counts - 1]  # (K, S), (K, C)
    first = by_then[:, None, :] >= counts[:, None]  # (K, C, S): the count comes first
    scores = np.where(first, early[:, :, None], late[:, None, :]).mean(axis=0)
    c, s = np.unravel_index(_first_best(scores), scores.shape)
    return CutOffPlan(float(scores[c, s]), count=float(counts[c]), until_s=float(times[s]))


_T = TypeVar("_T", bound=np.generic)


def _few(values: NDArray[_T]) -> NDArray[_T]:
    """Return at most 40 of the values, ascending, with both extremes and the last given value."""
    known = np.unique(values)
    if len(known) <= _CANDIDATES:
        return known
    kept = known[np.linspace(0, len(known) - 1, _CANDIDATES - 1).round().astype(int)]
    return np.unique(np.append(kept, values[-1]))


@dataclass
class Predicted(Rule):
    """Decides once, at the beginning of each iteration.

    The model's filter must have observed enough iterations before the first `begin` (see
    `WarmUp`).
    """

    following: Filter
    decision: Decision = best_count_or_deadline
    samples: int = 100  # joint draws per prediction

    def begin(self) -> Wait:
        plan = self.decision(self.draws(self.following.predict()))
        return Wait(plan.count, settled(plan.until_s))

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self.following.observe(seconds, censored)

    def draws(self, prediction: Prediction) -> Seconds:
        """Return draws of the run times, shape (samples, N), each row ascending."""
        return np.sort(prediction.sample(self.samples), axis=1)


@dataclass
class Replan(Predicted):
    """Plans at the beginning of each iteration and revises the plan during it.

    A plan comes from a prediction (`best_count_or_deadline`). The rule reviews it when it would
    end, and earlier at times at which some draws should end: it conditions the prediction on
    the workers that have finished, and plans again. The iteration ends when the gradients
    received score at least as much as the best plan for waiting longer. So it ends early if
    workers that the plan expected do not finish, and continues if other workers are about to.
    After the last review the rule waits no longer than the longest draw.

    Args:
        reviews: largest number of reviews of an iteration.
        clock: returns seconds, to measure the cost of predictions. Reviews that would take more
            than a twentieth of an iteration are made less often or not at all. Without a
            clock predictions cost nothing, so that virtual time is reproducible.
        note: called once if iterations are too short for reviews.
    """

    reviews: int = 8
    clock: Callable[[], float] = lambda: 0.0
    note: Callable[[str], None] = lambda _: None
    _noted: bool = field(default=False, init=False)
    _costs_s: deque[float] = field(default_factory=lambda: deque(maxlen=_COSTS), init=False)
    _iteration_s: float = field(default=math.inf, init=False)
    _left: int = field(default=0, init=False)  # reviews
    _prediction: Prediction | None = field(default=None, init=False)

    def begin(self) -> Wait:
        start = self.clock()
        self._prediction = self.following.predict()
        draws = self.draws(self._prediction)
        plan = best_count_or_deadline(draws)
        self._costs_s.append(self.clock() - start)
        self._left = self._affordable(median(self._costs_s))
        return self._until(plan, draws, 0.0)

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        assert self._prediction is not None, "reviewed before it began"
        self._left -= 1
        here = int(np.count_nonzero(~np.isnan(arrived)))
        draws = self.draws(self._prediction.given(arrived, elapsed_s))
        plan = best_count_or_deadline(draws, beyond=here, after_s=elapsed_s)
        if here and here / elapsed_s >= plan.score:
            return Wait(count=here)
        return self._until(plan, draws, elapsed_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._iteration_s = ended_s
        super().observe(seconds, censored, ended_s)

    def _affordable(self, cost_s: float) -> int:
        if cost_s * self.reviews <= _SHARE * self._iteration_s:
            return self.reviews
        affordable = int(_SHARE * self._iteration_s / cost_s)
        if not affordable and not self._noted:
            self._noted = True
            self.note(
                f"a prediction takes {1e3 * cost_s:.1f} ms, and iterations of "
                f"{1e3 * self._iteration_s:.1f} ms are too short to plan again in them: most "
                "follow the first plan"
            )
        return affordable

    def _until(self, plan: CutOffPlan, draws: Seconds, now: float) -> Wait:
        until_s = plan.until_s
        if until_s == math.inf:  # in every draw the count is reached by then
            until_s = float(draws[:, int(plan.count) - 1].max())
        if not self._left:  # no later review could detect that the count is never reached
            return Wait(plan.count, settled(until_s))
        if self._left > 1:
            _, ends = _best_ends(draws)
            early = ends[(ends > now) & (ends < until_s)]
            if len(early):
                until_s = next(t for t in np.quantile(early, _LEVELS) if t > now)
        return Wait(again_s=settled(until_s), again_count=plan.count)
