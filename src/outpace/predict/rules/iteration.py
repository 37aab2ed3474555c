"""Plays one iteration of a rule with known run times: the definition of `Wait`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds


@dataclass(frozen=True, slots=True)
class Ended:
    """The number of gradients of an iteration, and the seconds after which it ended."""

    count: int
    ended_s: float


def play(rule: Rule, wait: Wait, seconds: Seconds) -> Ended:
    """Return the end of an iteration that starts with `wait` and is reviewed by `rule`.

    seconds: the workers' times, shape (N,); NaN for an absent worker. A review whose time or
    count has already passed is ignored.
    """
    order = np.sort(seconds[~np.isnan(seconds)])
    now = 0.0
    while True:
        until = min(wait.until_s, _arrival(wait.count, order))
        end = max(now, float(min(max(order[0], until), order[-1])))
        reviews = wait.again_s, _arrival(wait.again_count, order)
        again = min((time for time in reviews if time > now), default=math.inf)
        if end <= again:
            return Ended(int(np.searchsorted(order, end, "right")), end)
        now = again
        wait = rule.review(np.where(seconds <= now, seconds, math.nan), now)


def came(seconds: Seconds, censored: Mask, ended_s: float) -> int:
    """Return how many workers had finished at `ended_s`; arguments as in `Rule.observe`."""
    return int((seconds[~censored] <= ended_s).sum())


def _arrival(count: float, order: Seconds) -> float:
    """Return the time of the count-th arrival; infinite if there are fewer workers."""
    return float(order[max(1, math.ceil(count)) - 1]) if count <= len(order) else math.inf
