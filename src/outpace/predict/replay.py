"""A rule against a recorded table: what it would have done, and what would have been best."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.iteration import play, shown
from outpace.support.checks import require

Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What came of it. One entry per iteration, shape (T,); seconds.

    count, ended_s: of the rule. best_count, best_s: of whoever knows the times, the largest
    c / x_(c). all_count, all_s: of waiting for all. ready_s: what the rule took on the host
    to observe the iteration before and to begin; rule_s: that and its reviews.
    """

    count: NDArray[np.int64]
    ended_s: Seconds
    best_count: NDArray[np.int64]
    best_s: Seconds
    all_count: NDArray[np.int64]
    all_s: Seconds
    ready_s: Seconds
    rule_s: Seconds
    reviews: NDArray[np.int64]

    def since(self, iteration: int) -> Replay:
        """Without the iterations before it."""
        return replace(
            self, **{name: getattr(self, name)[iteration:] for name in self.__dataclass_fields__}
        )

    @property
    def throughput(self) -> Seconds:
        """Ω, gradients per second, of each iteration."""
        return self.count / self.ended_s

    @property
    def best_throughput(self) -> Seconds:
        return self.best_count / self.best_s

    @property
    def of_oracle(self) -> float:
        """Mean Ω, in per cent of the largest possible mean Ω."""
        return float(100 * self.throughput.mean() / self.best_throughput.mean())

    @property
    def gradients_per_s(self) -> float:
        """Of the whole run, which is not the mean of the iterations."""
        return float(self.count.sum() / self.ended_s.sum())

    @property
    def time_saved(self) -> float:
        """Of the seconds per gradient when waiting for all: the share that is saved."""
        waiting = self.all_s.sum() / self.all_count.sum()
        return float(1 - 1 / (self.gradients_per_s * waiting))


def replay(
    rule: Rule, seconds: Seconds, *, censored: bool = True, clock: Clock = time.perf_counter
) -> Replay:
    """Run the rule over true run times, shape (T, N); NaN where a worker was not there.

    censored: it is shown of those cut off only how long they had computed when the iteration
    ended, as in a run; else their times, as if they had gone on. Raises ValueError for
    times that are not positive, and for iterations nobody was there for.
    """
    there = ~np.isnan(seconds)
    require(bool((seconds[there] > 0).all()), "seconds", "positive", "what they are")
    require(bool(there.any(axis=1).all()), "seconds", "there for somebody", "NaN for all")
    timed = _Timed(rule, clock)
    rows = []
    for row in seconds:
        ended = play(timed, timed.begin(), row)
        spent = timed.ready_s, timed.spent_s, timed.reviews
        timed.forget()
        seen = shown(row, ended, censored=censored)
        timed.observe(seen.seconds, seen.censored, ended.ended_s)
        rows.append((ended.count, ended.ended_s, *spent))
    count, ended_s, ready_s, rule_s, reviews = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    order = np.sort(seconds, axis=1)  # NaN last
    counts = np.arange(1, seconds.shape[1] + 1)
    best = np.nanargmax(counts / order, axis=1)
    every = there.sum(axis=1)
    turn = np.arange(len(seconds))
    return Replay(
        count,
        ended_s,
        best + 1,
        order[turn, best],
        every,
        order[turn, every - 1],
        ready_s,
        rule_s,
        reviews,
    )


class _Timed:
    """A rule, and what it takes."""

    def __init__(self, rule: Rule, clock: Clock) -> None:
        self._rule = rule
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        self.ready_s = self.spent_s = 0.0
        self.reviews = 0

    def begin(self) -> Wait:
        start = self._clock()
        wait = self._rule.begin()
        self._spend(start)
        self.ready_s = self.spent_s
        return wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        start = self._clock()
        wait = self._rule.review(arrived, elapsed_s)
        self._spend(start)
        self.reviews += 1
        return wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        start = self._clock()
        self._rule.observe(seconds, censored, ended_s)
        self._spend(start)

    def _spend(self, start: float) -> None:
        self.spent_s += self._clock() - start
