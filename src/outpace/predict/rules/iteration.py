"""One iteration under a rule, from times that are known: what `Wait` means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds


@dataclass(frozen=True, slots=True)
class Ended:
    """After so many seconds, with so many gradients."""

    count: int
    ended_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """What a rule is shown of an iteration that has ended: arguments of `Rule.observe`."""

    seconds: Seconds
    censored: Mask


def play(rule: Rule, wait: Wait, seconds: Seconds) -> Ended:
    """How an iteration ends that began with this `Wait`; the rule is asked again as it goes.

    seconds: shape (N,), the workers' times; NaN for one that is not there. A time or count
    to ask again at that has passed already is nothing to wait for: it is ignored.
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
    """The times of an iteration, or of those who came only: the others took longer."""
    cut = seconds > ended.ended_s
    if not censored:
        return Shown(seconds, np.zeros_like(cut))
    return Shown(np.where(cut, ended.ended_s, seconds), cut)


def came(seconds: Seconds, censored: Mask, ended_s: float) -> int:
    """How many had come by the end; arguments of `Rule.observe`."""
    return int((seconds[~censored] <= ended_s).sum())


def _end(wait: Wait, order: Seconds) -> float:
    first, last = order[0], order[-1]
    return float(min(max(first, min(wait.until_s, _arrival(wait.count, order))), last))


def _again(wait: Wait, order: Seconds, now: float) -> float:
    times = wait.again_s, _arrival(wait.again_count, order)
    return min((time for time in times if time > now), default=math.inf)


def _arrival(count: float, order: Seconds) -> float:
    """When so many have come; never if there are not so many."""
    return float(order[max(1, math.ceil(count)) - 1]) if count <= len(order) else math.inf
