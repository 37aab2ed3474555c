"""Applies rules to known run times: the meaning of a `Wait`, and the best possible result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded import Mask, Seconds
from outpace.support.checks import require

Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an iteration: number of gradients, length in seconds, and number of reviews."""

    count: int
    ended_s: float
    reviews: int = 0


def play(rule: Rule, wait: Wait, seconds: Seconds) -> Ended:
    """Return the end of an iteration that starts with `wait` and is reviewed by `rule`.

    seconds: the workers' times, shape (N,); NaN for an absent worker. A review whose time or
    count has already passed is ignored.
    """
    order = np.sort(seconds[~np.isnan(seconds)])

    def arrival_s(count: float) -> float:
        return float(order[max(1, math.ceil(count)) - 1]) if count <= len(order) else math.inf

    now, reviews = 0.0, 0
    while True:
        until = min(wait.until_s, arrival_s(wait.count))
        end = max(now, float(min(max(order[0], until), order[-1])))
        due = wait.again_s, arrival_s(wait.again_count)
        again = min((time_s for time_s in due if time_s > now), default=math.inf)
        if end <= again:
            return Ended(int(np.searchsorted(order, end, "right")), end, reviews)
        now, reviews = again, reviews + 1
        wait = rule.review(np.where(seconds <= now, seconds, math.nan), now)


def came(seconds: Seconds, censored: Mask, ended_s: float) -> int:
    """Return how many workers had finished at `ended_s`. Arguments as in `Rule.observe`."""
    return int((seconds[~censored] <= ended_s).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """The result of a replay. Each field has one entry per iteration, shape (T,); times in seconds.

    Attributes:
        count, ended_s: number of gradients and end of the iteration with the rule.
        best_count, best_s: the same for an oracle that knows the times: the largest c / x_(c).
        all_count, all_s: the same if the rule waits for all workers.
        ready_s: time on the host to observe the previous iteration and to begin.
        rule_s: `ready_s` and the time of the reviews.
        reviews: number of reviews.
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
        """Return the result without the iterations before this one."""
        return replace(
            self, **{name: getattr(self, name)[iteration:] for name in self.__dataclass_fields__}
        )

    @property
    def throughput(self) -> Seconds:
        """Ω, the gradients per second of each iteration."""
        return self.count / self.ended_s

    @property
    def best_throughput(self) -> Seconds:
        return self.best_count / self.best_s

    @property
    def of_oracle(self) -> float:
        """Mean Ω in percent of the oracle's mean Ω."""
        return float(100 * self.throughput.mean() / self.best_throughput.mean())

    @property
    def gradients_per_s(self) -> float:
        """Gradients per second of the whole run, which is not the mean over the iterations."""
        return float(self.count.sum() / self.ended_s.sum())

    @property
    def time_saved(self) -> float:
        """Share of the seconds per gradient that is saved, compared with waiting for all."""
        waiting = self.all_s.sum() / self.all_count.sum()
        return float(1 - 1 / (self.gradients_per_s * waiting))


def replay(
    rule: Rule, seconds: Seconds, *, censored: bool = True, clock: Clock = time.perf_counter
) -> Replay:
    """Run the rule over true run times.

    Args:
        rule: observes and decides as in a run.
        seconds: run times, shape (T, N); NaN if a worker was absent.
        censored: True: the rule observes only the time until the cut-off of a worker that was cut
            off, as in a run; False: its true time.
        clock: measures the rule's time on the host, in seconds.

    Raises:
        ValueError: for times that are not positive, and iterations without workers.
    """
    there = ~np.isnan(seconds)
    require(bool((seconds[there] > 0).all()), "seconds", "positive", "0 or less")
    require(
        bool(there.any(axis=1).all()), "seconds", "known for a worker in every iteration", "all NaN"
    )
    rows: list[tuple[float, ...]] = []
    observed_s = 0.0
    for row in seconds:
        began = clock()
        wait = rule.begin()
        ready = clock()
        end = play(rule, wait, row)
        reviewed_s = clock() - ready if end.reviews else 0.0
        before_s = observed_s + ready - began
        rows.append((end.count, end.ended_s, before_s, before_s + reviewed_s, end.reviews))
        cut = (row > end.ended_s) & censored
        began = clock()
        rule.observe(np.where(cut, end.ended_s, row), cut, end.ended_s)
        observed_s = clock() - began
    count, ended_s, ready_s, rule_s, reviews = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    order = np.sort(seconds, axis=1)  # NaN last
    counts = np.arange(1, seconds.shape[1] + 1)
    best = np.nanargmax(counts / order, axis=1)
    every = there.sum(axis=1)
    turn = np.arange(len(seconds))
    return Replay(
        *(count, ended_s),
        *(best + 1, order[turn, best]),
        *(every, order[turn, every - 1]),
        *(ready_s, rule_s, reviews),
    )
