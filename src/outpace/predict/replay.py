"""A rule on a recorded table: what it would have done, and what would have been best."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.iteration import play
from outpace.support.checks import require

Clock: TypeAlias = Callable[[], float]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """The result of a replay. Each field has one entry per iteration, shape (T,); times in seconds.

    Attributes:
        count, ended_s: gradients and end of the iteration with the rule.
        best_count, best_s: with an oracle that knows the times: the largest c / x_(c).
        all_count, all_s: with waiting for all workers.
        ready_s: time on the host to observe the iteration before and to begin.
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
        """Mean Ω in per cent of the oracle's mean Ω."""
        return float(100 * self.throughput.mean() / self.best_throughput.mean())

    @property
    def gradients_per_s(self) -> float:
        """Gradients per second of the whole run, which is not the mean over the iterations."""
        return float(self.count.sum() / self.ended_s.sum())

    @property
    def time_saved(self) -> float:
        """The share of the seconds per gradient that is saved, compared with waiting for all."""
        waiting = self.all_s.sum() / self.all_count.sum()
        return float(1 - 1 / (self.gradients_per_s * waiting))


def replay(
    rule: Rule, seconds: Seconds, *, censored: bool = True, clock: Clock = time.perf_counter
) -> Replay:
    """Run the rule over true run times.

    seconds: shape (T, N); NaN where a worker was absent. censored: True if the rule observes of
    a worker that was cut off only how long it had computed when the iteration ended, as in a run;
    else its true time. clock: measures what the rule takes on the host, in seconds. Raises
    ValueError for times that are not positive, and iterations without workers.
    """
    there = ~np.isnan(seconds)
    require(bool((seconds[there] > 0).all()), "seconds", "positive", "0 or less")
    require(
        bool(there.any(axis=1).all()), "seconds", "known for a worker in every iteration", "all NaN"
    )
    timed = _Timed(rule, clock)
    rows: list[tuple[float, ...]] = []
    for row in seconds:
        ended = play(timed, timed.begin(), row)
        ready = 2 if rows else 1  # calls: observe, except before the first iteration, and begin
        spent, timed.spent_s = timed.spent_s, []
        cut = (row > ended.ended_s) & censored
        timed.observe(np.where(cut, ended.ended_s, row), cut, ended.ended_s)
        took = sum(spent[:ready]), sum(spent), len(spent) - ready
        rows.append((ended.count, ended.ended_s, *took))
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


class _Timed(Rule):
    """A rule whose calls are timed on the host: `spent_s` has one entry per call."""

    def __init__(self, rule: Rule, clock: Clock) -> None:
        self._rule = rule
        self._clock = clock
        self.spent_s: list[float] = []

    def begin(self) -> Wait:
        return self._timed(self._rule.begin)

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self._timed(lambda: self._rule.review(arrived, elapsed_s))

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self._timed(lambda: self._rule.observe(seconds, censored, ended_s))

    def _timed(self, call: Callable[[], _T]) -> _T:
        start = self._clock()
        answer = call()
        self.spent_s.append(self._clock() - start)
        return answer
