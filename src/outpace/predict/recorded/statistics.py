"""Statistics of a table of run times: slow workers, and the gain of waiting for fewer of them.

x_(c) is the c-th smallest run time of an iteration, and Ω(c) = c / x_(c) the gradients per
second if the iteration ends with the c-th gradient (BDSGD, equation 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.recorded.table import Mask, RunTimes, Seconds

SLOW: Final = 1.25  # factor over the time of the fast workers
_FAST: Final = 0.2  # share of the workers that is assumed not to be slow in any iteration
_ENOUGH: Final = 0.5  # share of the iterations that a count must be possible in to be judged


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """The sorted run times of each iteration, shape (T, N), NaN after the last.

    exact: True where it is x_(c), and not a lower bound because a worker was cut off.
    """

    seconds: Seconds
    exact: Mask


def ordered(times: RunTimes) -> Ordered:
    """Sort the run times of each iteration; cut-off workers count with the time of the cut-off."""
    place = np.argsort(times.seconds, axis=1, kind="stable")  # NaN goes last
    bounds = np.take_along_axis(times.censored, place, axis=1)
    return Ordered(
        np.take_along_axis(times.seconds, place, axis=1),
        ~np.logical_or.accumulate(bounds, axis=1),
    )


@dataclass(frozen=True, slots=True, eq=False)
class MeanThroughput:
    """Mean Ω(c) over the iterations in which c workers were there.

    Args:
        rate: Ω(c) at entry c - 1; an upper bound where it is not exact.
        exact: True where no time in it is a bound.
        best: The count with the highest exact rate; 0 if none is exact.
        hindsight: Mean of the highest Ω(c) of each iteration, which only an oracle reaches;
            None if an iteration was cut off.
    """

    rate: Seconds
    exact: Mask
    best: int
    hindsight: float | None

    @property
    def all(self) -> float:
        """Gradients per second when waiting for all; an upper bound unless it is exact."""
        return float(self.rate[-1])

    @property
    def gain(self) -> float | None:
        """Relative gain of the best count over waiting for all; a lower bound unless exact.

        None if no count is exact, or if waiting for all might be better.
        """
        if not self.best:
            return None
        gain = float(self.rate[self.best - 1]) / self.all - 1
        return gain if self.exact[-1] or gain > 0 else None


def throughput(order: Ordered) -> MeanThroughput:
    """Return the throughput by count, without counts possible in less than half the iterations."""
    there = ~np.isnan(order.seconds)
    judged = int((there.mean(axis=0) >= _ENOUGH).sum())
    seconds, there = order.seconds[:, :judged], there[:, :judged]
    counts = np.arange(1, judged + 1)
    rate = np.nanmean(counts / seconds, axis=0)
    exact: Mask = np.logical_and.reduce(order.exact[:, :judged] | ~there, axis=0)
    best = int(np.where(exact, rate, -np.inf).argmax()) + 1 if exact.any() else 0
    whole = bool(exact.all())
    hindsight = float(np.nanmax(counts / seconds, axis=1).mean()) if whole else None
    return MeanThroughput(rate, exact, best, hindsight)


@dataclass(frozen=True, slots=True, eq=False)
class Slowness:
    """Workers that took more than SLOW times as long as the fastest fifth, or were cut off.

    Args:
        slow: True where a worker was slow, shape (T, N).
        share: Share of slow iterations among all that a worker was there for, shape (N,).
        runs: Lengths of uninterrupted slow periods of all workers, in iterations.
        longest: Length of the longest slow period of each worker, shape (N,).
    """

    slow: Mask
    share: Seconds
    runs: NDArray[np.int64]
    longest: NDArray[np.int64]


def fast(times: RunTimes) -> Seconds:
    """Return the time by which the fastest fifth of the workers is done, shape (T, 1).

    The median is no reference: half of the workers may be slow at the same time.
    """
    found: Seconds = np.nanquantile(times.seconds, _FAST, axis=1, keepdims=True)
    return found


def slowness(times: RunTimes) -> Slowness:
    slow = times.censored | (times.seconds > SLOW * fast(times))
    there = np.maximum((~np.isnan(times.seconds)).sum(axis=0), 1)
    edge = np.zeros((1, times.workers), np.int8)
    steps = np.diff(np.concatenate([edge, slow.astype(np.int8), edge]), axis=0)
    worker, begins = np.nonzero(steps.T == 1)
    _, ends = np.nonzero(steps.T == -1)
    longest = np.zeros(times.workers, np.int64)
    np.maximum.at(longest, worker, ends - begins)
    return Slowness(slow, slow.sum(axis=0) / there, ends - begins, longest)
