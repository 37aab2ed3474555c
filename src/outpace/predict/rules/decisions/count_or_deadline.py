"""A count and a deadline, whichever comes first: the best pair, and so no worse than either."""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.decisions.count import best_count
from outpace.predict.rules.decisions.deadline import best_deadline
from outpace.predict.rules.decisions.objective import Objective
from outpace.predict.rules.decisions.plan import CutOffPlan

_T = TypeVar("_T", bound=np.generic)
_CANDIDATES: Final = 40  # of counts, and of deadlines


def best_count_or_deadline(
    draws: Seconds, objective: Objective, *, beyond: int = 0, after_s: float = 0.0
) -> CutOffPlan:
    """Among counts above `beyond` and deadlines after `after_s`, jointly.

    draws: shape (K, N), rows ascending, seconds. The candidates are what would have been
    best in each of the draws (`best_ends`), the best count and the best deadline; these two
    by themselves are found among all there are.
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
    return max(count, deadline, pair, key=lambda plan: plan.score)


def best_ends(
    draws: Seconds, objective: Objective, *, beyond: int = 0
) -> tuple[NDArray[np.int64], Seconds]:
    """Where it would have been best to stop each of the draws: after how many, and when."""
    scores = objective.score(np.arange(beyond + 1, draws.shape[1] + 1), draws[:, beyond:])
    places = beyond + scores.argmax(axis=1)
    return places + 1, draws[np.arange(len(draws)), places]


def _best_pair(
    draws: Seconds, objective: Objective, counts: NDArray[np.int64], times: Seconds
) -> CutOffPlan:
    times = times[np.isfinite(times)]
    if not len(times):
        return CutOffPlan(-np.inf)
    by_then = np.stack([np.searchsorted(row, times, "right") for row in draws])  # (K, S)
    by_then = by_then.clip(1)
    ends = np.maximum(times, draws[:, :1])  # never before the first arrival
    reached = draws[:, counts - 1]  # (K, C)
    late = objective.score(by_then, ends)
    early = objective.score(counts, reached)
    first = by_then[:, None, :] >= counts[:, None]  # (K, C, S): the count comes first
    scores = np.where(first, early[:, :, None], late[:, None, :]).mean(axis=0)
    c, s = np.unravel_index(int(scores.argmax()), scores.shape)
    return CutOffPlan(float(scores[c, s]), count=float(counts[c]), until_s=float(times[s]))


def _few(values: NDArray[_T]) -> NDArray[_T]:
    """At most so many of them, ascending, the last one given and the ends among them."""
    known = np.unique(values)
    if len(known) <= _CANDIDATES:
        return known
    kept = known[np.linspace(0, len(known) - 1, _CANDIDATES - 1).round().astype(int)]
    return np.unique(np.append(kept, values[-1]))
