"""The time s at which to stop, whoever has come by then: the largest E[n(s) / s]."""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.decisions.objective import Objective
from outpace.predict.rules.decisions.plan import CutOffPlan

_TIMES: Final = 20_000  # candidates: one in so many arrivals more or less is nothing


def best_deadline(draws: Seconds, objective: Objective, *, after_s: float = 0.0) -> CutOffPlan:
    """Among the draws' own times after `after_s`: between two of them scores only fall.

    draws: shape (K, N), rows ascending, seconds; inf for a worker that will not come. As
    `Wait` has it, a draw ends at its first arrival if that is later than s, and at its last
    if that is earlier: then its score is known. The other draws are scored by the sum of
    their arrivals, so that one pass over the pooled times does for all.
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
    best = int(scores.argmax())
    return CutOffPlan(float(scores[best]), until_s=float(times[best]))


def _sums(times: Seconds, events: Seconds, values: Seconds) -> tuple[Seconds, Seconds]:
    """How many events there were by each of the times (ascending), and the sum of their values."""
    place = np.searchsorted(times, events)
    size = len(times) + 1
    count = np.bincount(place, minlength=size)[:-1].cumsum()
    total = np.bincount(place, values, minlength=size)[:-1].cumsum()
    return count, total
