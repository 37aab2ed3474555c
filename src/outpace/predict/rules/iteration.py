"""One iteration under a rule, played with known times: the meaning of `Wait`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds


@dataclass(frozen=True, slots=True)
class Ended:
    """How many gradients an iteration has, and after how many seconds it ended."""

    count: int
    ended_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The part of an iteration that its rule may observe: arguments of `Rule.observe`."""

    seconds: Seconds
    censored: Mask


def play(rule: Rule, wait: Wait, seconds: Seconds) -> Ended:
    """Return how an iteration ends that begins with this `Wait`; the rule reviews it as it goes.

    seconds: the workers' times, shape (N,); NaN for an absent worker. A time or count for a
    review that has passed already is ignored.
    """
    order = np.sort(seconds[~np.isnan(seconds)])
    now = 0.0
    while True:
        end = max(now, _end(wait, order))
        again = _again(wait, order, now)
        if end <= again:
            return Ended(int(np.searchsorted(order, end, "right")), end)
        now = again
        wait = rule.review(np.where(seconds <= now, seconds, math.nan), now)


def shown(seconds: Seconds, ended: Ended, *, censored: bool) -> Shown:
    """Return the times of an iteration; if censored, only bounds for workers that came too late."""
    cut = seconds > ended.ended_s
    if not censored:
        return Shown(seconds, np.zeros_like(cut))
    return Shown(np.where(cut, ended.ended_s, seconds), cut)


def came(seconds: Seconds, censored: Mask, ended_s: float) -> int:
    """Return how many workers had come by the end; arguments of `Rule.observe`."""
    return int((seconds[~censored] <= ended_s).sum())


def _end(wait: Wait, order: Seconds) -> float:
    first, last = order[0], order[-1]
    return float(min(max(first, min(wait.until_s, _arrival(wait.count, order))), last))


def _again(wait: Wait, order: Seconds, now: float) -> float:
    times = wait.again_s, _arrival(wait.again_count, order)
    return min((time for time in times if time > now), default=math.inf)


def _arrival(count: float, order: Seconds) -> float:
    """Return when so many workers have come; infinite if there are fewer."""
    return float(order[max(1, math.ceil(count)) - 1]) if count <= len(order) else math.inf
