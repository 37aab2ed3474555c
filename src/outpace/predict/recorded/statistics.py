"""What a table of run times shows of its workers, and what waiting for fewer would gain.

x_(c) is the c-th smallest of an iteration's run times, Ω(c) = c / x_(c) the gradients per
second if the iteration ends with the c-th (BDSGD, equation 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.predict.recorded.table import Mask, RunTimes, Seconds

SLOW: Final = 1.25  # times what the fast ones take
_FAST: Final = 0.2  # so large a share of the workers is never slow together with the others
_ENOUGH: Final = 0.5  # of the iterations, for a count to be judged


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """Each iteration's run times in order, shape (T, N); NaN after the last.

    exact: whether that is x_(c), and no lower bound of it because somebody was cut off.
    """

    seconds: Seconds
    exact: Mask


def ordered(times: RunTimes) -> Ordered:
    """Who was cut off stands at the time when that was."""
    place = np.argsort(times.seconds, axis=1, kind="stable")  # NaN goes last
    bounds = np.take_along_axis(times.censored, place, axis=1)
    return Ordered(
        np.take_along_axis(times.seconds, place, axis=1),
        ~np.logical_or.accumulate(bounds, axis=1),
    )


@dataclass(frozen=True, slots=True, eq=False)
class MeanThroughput:
    """Mean Ω(c) over the iterations in which so many workers were there; entry c - 1.

    exact: no time in it is a bound, so it is Ω(c) and not at least that much. best: the count
    with the highest of those that are exact, 0 if none is. hindsight: mean of the highest
    Ω(c) of each iteration, which nobody can know before; None if something was cut off.
    """

    rate: Seconds
    exact: Mask
    best: int
    hindsight: float | None

    @property
    def all(self) -> float:
        """Gradients per second of whoever waits for all; at most, unless that is exact."""
        return float(self.rate[-1])

    @property
    def gain(self) -> float | None:
        """Of the best count over waiting for all, as a share: at least, unless all is exact.

        None if there is no such count, or if waiting for all might be better.
        """
        if not self.best:
            return None
        gain = float(self.rate[self.best - 1]) / self.all - 1
        return gain if self.exact[-1] or gain > 0 else None


def throughput(order: Ordered) -> MeanThroughput:
    """Counts that fewer than half of the iterations had workers for are left out."""
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
    """Who took more than SLOW times what the fastest fifth did, or was cut off.

    slow: shape (T, N). share: of the iterations in which a worker was there, shape (N,).
    runs: lengths of the spells without a break, over all workers. longest: per worker.
    """

    slow: Mask
    share: Seconds
    runs: NDArray[np.int64]
    longest: NDArray[np.int64]


def fast(times: RunTimes) -> Seconds:
    """By when the fastest fifth of the workers is done, shape (T, 1).

    The median would do only if half of the workers were never slow at the same time.
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
