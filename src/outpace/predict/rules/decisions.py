"""Decides how long to wait, from sampled run times of an iteration and an objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outpace.predict.interface import Wait
from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.settings import ObjectiveName


@dataclass(slots=True)
class Objective:
    """The score that a rule maximises, for n gradients in s seconds.

    `iteration`: Ω = n / s of each iteration separately (BDSGD, section 3).

    `run`: gradients per second over the whole run, as n − λ s with λ = gradients / seconds so
    far. The mean of n / s differs from the run's rate, because it weighs a short iteration with
    few gradients as much as a long one with many. The rate Σn / Σs is largest where
    E[n] − λ E[s] is, with λ the largest rate (Dinkelbach 1967); the running rate approaches λ.

    Both are linear in n, so that draws with equal s can be scored together.
    """

    name: ObjectiveName = "iteration"
    gradients: float = 0.0
    seconds: float = 0.0

    def score(self, n: ArrayLike, s: ArrayLike, draws: ArrayLike = 1) -> Seconds:
        """Return the sum of the scores of `draws` draws: n gradients in all, s seconds each."""
        n, s = np.asarray(n), np.asarray(s)
        if self.name == "iteration" or not self.seconds:  # no iteration has ended yet
            return np.asarray(n / s, dtype=np.float64)
        rate = self.gradients / self.seconds * np.asarray(draws)
        return np.asarray(n - rate * s, dtype=np.float64)

    def observe(self, n: int, s: float) -> None:
        """Note that an iteration ended after s seconds with n gradients."""
        self.gradients += n
        self.seconds += s


@dataclass(frozen=True, slots=True)
class CutOffPlan:
    """A number of workers, a deadline (s) or both; `score`: mean objective over the draws."""

    score: float
    count: float = math.inf
    until_s: float = math.inf

    @property
    def wait(self) -> Wait:
        return Wait(count=self.count, until_s=self.until_s)


# Takes draws of one iteration's run times, shape (K, N), each row ascending, in seconds.
Decision: TypeAlias = Callable[[Seconds, Objective], CutOffPlan]


def settled(time_s: float) -> float:
    """Return a time rounded up to six digits: later ones depend on how a processor rounds."""
    if not 0.0 < time_s < math.inf:
        return time_s
    unit = 10.0 ** (math.floor(math.log10(time_s)) - 5)
    # A worker that arrives at this very time is waited for, so the time itself is the least.
    return max(time_s, math.ceil(time_s / unit * (1.0 - 1e-9)) * unit)


def _first_best(scores: Seconds) -> int:
    """Return the place of the best score, the first one of those that differ by rounding only."""
    largest = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)) or 1.0
    return int(np.round(scores / largest, _DIGITS).argmax())


def best_count(draws: Seconds, objective: Objective, *, beyond: int = 0) -> CutOffPlan:
    """Return the count c above `beyond` with the largest E[c / x_(c)] (BDSGD, section 3)."""
    counts = np.arange(beyond + 1, draws.shape[1] + 1)
    scores = objective.score(counts, draws[:, beyond:]).mean(axis=0)
    best = _first_best(scores)
    return CutOffPlan(float(scores[best]), count=float(counts[best]))


_DIGITS: Final = 10  # of scores that are compared
_TIMES: Final = 20_000  # candidates; more would not change the score noticeably


def best_deadline(draws: Seconds, objective: Objective, *, after_s: float = 0.0) -> CutOffPlan:
    """Return the time s with the largest E[n(s) / s], where n(s) workers have come by then.

    Candidates are the draws' times after `after_s`, because the score only falls between two
    of them. The time of a worker that will not come is inf. As defined by `Wait`, a draw ends
    at its first arrival if s is earlier, and at its last arrival if s is later; its score is
    then known. The scores of the other draws come from one pass over all sorted times.
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
    begun, begun_score = _sums(times, firsts, objective.score(1, firsts))
    done, done_score = _sums(times, lasts, objective.score(workers, lasts))
    waiting_score = objective.score(1, firsts).sum() - begun_score
    open_score = objective.score(arrivals - workers * done, times, begun - done)
    scores = (waiting_score + done_score + open_score) / len(draws)
    best = _first_best(scores)
    return CutOffPlan(float(scores[best]), until_s=float(times[best]))


def _sums(times: Seconds, events: Seconds, values: Seconds) -> tuple[Seconds, Seconds]:
    """Return the number of events up to each time (ascending), and the sum of their values."""
    place = np.searchsorted(times, events)
    size = len(times) + 1
    count = np.bincount(place, minlength=size)[:-1].cumsum()
    total = np.bincount(place, values, minlength=size)[:-1].cumsum()
    return count, total


_T = TypeVar("_T", bound=np.generic)
_CANDIDATES: Final = 40  # for the count, and for the deadline


def best_count_or_deadline(
    draws: Seconds, objective: Objective, *, beyond: int = 0, after_s: float = 0.0
) -> CutOffPlan:
    """Return the best count above `beyond` and deadline after `after_s`, whichever comes first.

    Candidates for the pair are the best end of each draw (`best_ends`), the best count and the
    best deadline. The best count alone and the best deadline alone are considered, too.
    """
    count = best_count(draws, objective, beyond=beyond)
    deadline = best_deadline(draws, objective, after_s=after_s)
    counts, times = best_ends(draws, objective, beyond=beyond)
    pair = _best_pair(
        draws,
        objective,
        _few(np.append(counts, int(count.count))),
        _few(np.append(times[times > after_s], deadline.until_s)),
    )
    plans = count, deadline, pair
    return plans[_first_best(np.array([plan.score for plan in plans]))]


def best_ends(
    draws: Seconds, objective: Objective, *, beyond: int = 0
) -> tuple[NDArray[np.int64], Seconds]:
    """Return, for each draw, the count and the time with the best score."""
    scores = objective.score(np.arange(beyond + 1, draws.shape[1] + 1), draws[:, beyond:])
    places = beyond + scores.argmax(axis=1)
    return places + 1, draws[np.arange(len(draws)), places]


def _best_pair(
    draws: Seconds, objective: Objective, counts: NDArray[np.int64], times: Seconds
) -> CutOffPlan:
    times = times[np.isfinite(times)]
    if not len(times):
        return CutOffPlan(-np.inf)
    by_then = np.stack([row.searchsorted(times, "right") for row in draws])  # (K, S)
    by_then = by_then.clip(1)
    ends = np.maximum(times, draws[:, :1])  # a draw never ends before its first arrival
    reached = draws[:, counts - 1]  # (K, C)
    late = objective.score(by_then, ends)
    early = objective.score(counts, reached)
    first = by_then[:, None, :] >= counts[:, None]  # (K, C, S): the count comes first
    scores = np.where(first, early[:, :, None], late[:, None, :]).mean(axis=0)
    c, s = np.unravel_index(_first_best(scores), scores.shape)
    return CutOffPlan(float(scores[c, s]), count=float(counts[c]), until_s=float(times[s]))


def _few(values: NDArray[_T]) -> NDArray[_T]:
    """Return at most 40 of the values, ascending, with both extremes and the last one given."""
    known = np.unique(values)
    if len(known) <= _CANDIDATES:
        return known
    kept = known[np.linspace(0, len(known) - 1, _CANDIDATES - 1).round().astype(int)]
    return np.unique(np.append(kept, values[-1]))
