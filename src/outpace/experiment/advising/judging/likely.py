"""The strategy that is probably best, while no strategy is reliably better than BSP yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from outpace.experiment.advising.judging.found import Found
from outpace.experiment.advising.judging.statistics import Choice, speedup
from outpace.experiment.advising.question.candidates import BSP
from outpace.experiment.advising.question.problem import Problem
from outpace.support.estimates import TimeTo


def likely(
    problem: Problem, found: Found, times: Mapping[str, Sequence[TimeTo]], choice: Choice
) -> dict[str, Any] | None:
    """Return the leader of a study that ended too early to be sure of it.

    By the fresh seeds if there are any, which had no part in the search; else by the search.

    Returns:
        None if the study is complete or has a reliable answer, or if BSP leads.
    """
    if choice.distinguishable or found.ended == "complete" or found.search.best_curve is None:
        return None
    leader = _fresh(times) if found.seeds else _searched(found)
    if leader is None:
        return None
    name, over = leader
    rate = found.search.best_rate(name)
    runs = len(found.seeds) or len(found.search.known[name].of_rate(rate))
    return {
        "name": name,
        "strategy": problem.candidate(name).sync["kind"],
        "learning_rate": None if problem.rate is None else rate,
        "speedup_over_bsp": over,
        "seeds": runs,
        "fresh": bool(found.seeds),
        "recommendation": problem.recommendation(name, rate, found.every_s),
    }


def _fresh(times: Mapping[str, Sequence[TimeTo]]) -> tuple[str, float] | None:
    """Return the leader on the fresh seeds and its speed-up."""
    known = {
        name: over
        for name, own in times.items()
        if name != BSP
        and all(each.reached for each in own)
        and (over := speedup(own, times[BSP]).mean) is not None
    }
    best = max(known, key=lambda name: known[name], default=BSP)
    return (best, known[best]) if best != BSP and known[best] > 1 else None


def _searched(found: Found) -> tuple[str, float | None] | None:
    """Return the leader of the search and its speed-up; without one if BSP missed the target."""
    search = found.search
    name = search.ranked()[0]
    own = search.log_time(name, search.best_rate(name))
    bsp = search.log_time(BSP, search.best_rate(BSP))
    if name == BSP or not math.isfinite(own):
        return None
    if not math.isfinite(bsp):
        return name, None
    return (name, math.exp(bsp - own)) if bsp > own else None
