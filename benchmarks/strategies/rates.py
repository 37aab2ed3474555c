"""The search for a strategy's learning rate: a fixed number of runs, on a grid without an end.

The time to the target is taken to have one minimum over the rates. The search tries the first rate,
four times and a quarter of it. While the best one is the highest or the lowest tried, it continues
by factors of 4; then the factor between the best rate and its neighbours is halved to 2, and to √2.
So every strategy gets the same number of runs, wherever its rate is.

A run of the search ends when it has taken 1.5 times as long as the best one so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.support.estimates import TimeTo

_UNIT: Final = math.sqrt(2)  # the finest step
_FIRST: Final = 4  # units of the first step, which is a factor of 4
_PATIENCE: Final = 1.5  # times the best run so far


@dataclass(frozen=True, slots=True)
class Trial:
    """A run to be made: one learning rate on one seed, with a time limit."""

    rate: float
    seed: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class Tried:
    """A run of the search and its result."""

    rate: float
    seed: int
    time: TimeTo


@dataclass(frozen=True, slots=True)
class Tuned:
    """The rate that was chosen.

    Attributes:
        at_edge: no rate beyond the chosen one was tried, on at least one side.
    """

    rate: float
    at_edge: bool
    tried: tuple[Tried, ...]


def search(
    first: float,
    runs: int,
    finalists: int,
    seeds: Sequence[int],
    limit_s: float,
    run: Callable[[Trial], TimeTo],
) -> Tuned:
    """Return the best learning rate.

    Args:
        runs: rates to try, on the first seed.
        finalists: number of the best rates that are also run on the other seeds; the rate with the
            smallest mean is chosen.
        limit_s: limit of a run, in virtual time.
        run: makes a run, and returns its time to the target.
    """
    times: dict[int, TimeTo] = {}  # by place on the grid, in units
    tried: list[Tried] = []
    for _ in range(runs):
        place = following(times)
        trial = Trial(rate_at(first, place), seeds[0], _limit_s(limit_s, times.values()))
        times[place] = run(trial)
        tried.append(Tried(trial.rate, trial.seed, times[place]))
    best = _best_first(times)[:finalists]
    means: dict[int, list[float]] = {place: [_cost(times[place])] for place in best}
    for seed in seeds[1:]:
        found: list[TimeTo] = []
        for place in best:
            trial = Trial(rate_at(first, place), seed, _limit_s(limit_s, found))
            found.append(run(trial))
            means[place].append(_cost(found[-1]))
            tried.append(Tried(trial.rate, seed, found[-1]))
    chosen = min(best, key=lambda place: (sum(means[place]), best.index(place)))
    at_edge = chosen in (min(times), max(times))
    return Tuned(rate_at(first, chosen), at_edge, tuple(tried))


def rate_at(first: float, place: int) -> float:
    """Return the rate at a place of the grid, rounded to three digits."""
    return float(f"{first * _UNIT**place:.3g}")


def following(times: Mapping[int, TimeTo]) -> int:
    """Return the next place to try.

    If no rate has reached the target, lower ones are tried: stale gradients need lower rates.
    """
    for place in (0, _FIRST, -_FIRST):
        if place not in times:
            return place
    best = _best_first(times)[0]
    if not times[best].reached or best == min(times):
        return min(times) - _FIRST
    if best == max(times):
        return best + _FIRST
    for step in (_FIRST // 2, _FIRST // 4):
        for place in (best + step, best - step):
            if place not in times:
                return place
    return min(set(range(min(times), max(times) + 2)) - set(times), key=lambda p: abs(p - best))


def _limit_s(limit_s: float, times: Iterable[TimeTo]) -> float:
    return min([limit_s, *(_PATIENCE * time.time_s for time in times if time.reached)])


def _best_first(times: Mapping[int, TimeTo]) -> list[int]:
    """Return the places by time; places that missed the target last, by distance from the best."""
    best = min(times, key=lambda place: _cost(times[place]))
    return sorted(times, key=lambda place: (_cost(times[place]), abs(place - best)))


def _cost(time: TimeTo) -> float:
    return time.time_s if time.reached else math.inf
