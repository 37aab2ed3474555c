"""Iterations, computation and all-reduces of a data-parallel run whose ranks were profiled.

An iteration of a rank lasts from the end of the last all-reduce of a step until that of the next
step that has one. So it contains the update of the parameters, loading data, and the forward and
backward pass up to the next synchronisation, as an iteration of the simulation does. Steps that
only accumulate gradients (`no_sync`) are part of the iteration that ends with an all-reduce.

*Compute* is the iteration without the time in which the rank did nothing but wait for a collective
(`waits`). DDP sends its buckets during the backward pass: as far as the rank computes meanwhile,
that is computation. Processors that are slowed down by communication are part of it.

*Exposed* is the rest of an iteration, beyond the compute time of its slowest rank: how much longer
the all-reduces make an iteration. It is less than the time they take, where they overlap with the
backward pass.

An all-reduce *takes* the time from its last arrival, the latest begin of all ranks, until its end,
the latest end; ranks that came before have only waited. All-reduces that overlap share the network,
and make one period together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np

from outpace.cluster.calibration import Flags, Floats, Ints
from outpace.cluster.calibration.clocks import Clock, clocks_of, spread
from outpace.cluster.calibration.waits import merged, total_before, waits

_SHORTEST: Final = 1e-7  # s; of a period and a run time
_PARTIAL: Final = 2  # steps at each end that may be recorded in part


@dataclass(frozen=True, slots=True, eq=False)
class RankProfile:
    """Computation and collectives of one rank, in s of its own clock.

    Args:
        rank: Its number.
        busy: When it computed, shape (B, 2), disjoint and in order.
        step: Number of the step in which it issued each collective, shape (M,), not falling.
        begins, ends: Of its collectives, shape (M,).
        size_bytes: Of the tensors that each collective took in, shape (M,).
        is_all_reduce: Shape (M,).
        late_s: How long after the end of a collective it may be noted: `waits.LATE_S` of Gloo.
    """

    rank: int
    busy: Floats
    step: Ints
    begins: Floats
    ends: Floats
    size_bytes: Ints
    is_all_reduce: Flags
    late_s: float

    def where(self, chosen: Flags | Ints) -> RankProfile:
        """Return the profile with the chosen collectives only, by a mask or by their places."""
        names = "step", "begins", "ends", "size_bytes", "is_all_reduce"
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """Periods in which all-reduces were under way, shape (P,) each."""

    count: Ints
    size_bytes: Ints  # of all all-reduces of the period together
    seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Profiled:
    """A profiled run: T iterations of N ranks.

    Args:
        starts: In s since the start of the first one, shape (T, N).
        compute: In s, shape (T, N).
        exposed: In s, shape (T,); below 0 where no rank waited and their ends differ.
        size_bytes: Of all all-reduces of an iteration together, shape (T,).
        count: Number of all-reduces of an iteration, shape (T,).
        periods: Of all all-reduces.
        clocks: Of the ranks, against that of rank 0.
        spread_s: Median difference of the ends of an all-reduce on one clock.
    """

    starts: Floats
    compute: Floats
    exposed: Floats
    size_bytes: Ints
    count: Ints
    periods: Periods
    clocks: Sequence[Clock]
    spread_s: float

    @property
    def iterations(self) -> int:
        return len(self.exposed)

    @property
    def seconds(self) -> Floats:
        """Lengths of the iterations, shape (T,)."""
        return np.asarray(self.compute.max(axis=1) + self.exposed)


def profiled(ranks: Sequence[RankProfile]) -> Profiled:
    """Return the iterations of ranks in the order of their numbers.

    Raises:
        ValueError: in words, if they do not have the same collectives in the same steps, or fewer
            than two steps have an all-reduce.
    """
    ranks = _matched(ranks)
    first = ranks[0]
    is_all = first.is_all_reduce
    steps = np.unique(first.step[is_all])
    if len(steps) < 2:
        raise ValueError(f"{len(steps)} of their steps have an all-reduce")
    begins = np.stack([rank.begins for rank in ranks], axis=1)
    ends = np.stack([rank.ends for rank in ranks], axis=1)
    clocks = clocks_of(ends[is_all])
    # The last end of an all-reduce in each of these steps: the border of two iterations, (T + 1, N)
    of_step = np.searchsorted(steps, first.step[is_all])
    borders = np.full((len(steps), len(ranks)), -np.inf)
    np.maximum.at(borders, of_step, ends[is_all])
    waited = np.stack(
        [
            np.diff(total_before(waits(rank.busy, rank.begins, rank.ends, rank.late_s), border))
            for rank, border in zip(ranks, borders.T, strict=True)
        ],
        axis=1,
    )
    lengths = np.diff(borders, axis=0)
    compute = np.maximum(lengths - waited, _SHORTEST)
    exposed = lengths.mean(axis=1) - compute.max(axis=1)
    size_bytes = np.bincount(of_step, first.size_bytes[is_all], len(steps))[1:].astype(np.int64)
    count = np.bincount(of_step, minlength=len(steps))[1:]
    common = [clock.common(border) for clock, border in zip(clocks, borders.T, strict=True)]
    starts = np.stack(common, axis=1)[:-1]
    both = [
        np.stack([clock.common(times) for clock, times in zip(clocks, part[is_all].T, strict=True)])
        for part in (begins, ends)
    ]
    return Profiled(
        starts - starts.min(),
        compute,
        exposed,
        size_bytes,
        count,
        _periods(both[0].max(axis=0), both[1].max(axis=0), first.size_bytes[is_all]),
        clocks,
        spread(ends[is_all], clocks),
    )


def _matched(ranks: Sequence[RankProfile]) -> list[RankProfile]:
    """Return the ranks with the same collectives in the same places.

    All ranks leave a collective at nearly the same time. So of the collectives of one size the k-th
    to end in one rank is the k-th to end in another. Their begins would not do: threads of Gloo
    begin two that are issued together in either order, and may begin the last one of a step when
    the next step has begun. The first and the last two steps may be recorded in part; they are left
    out where ranks differ.
    """
    steps = reduce(np.intersect1d, [rank.step for rank in ranks])
    for _ in range(_PARTIAL):
        differ = _differences([rank.where(np.isin(rank.step, steps)) for rank in ranks])
        begin = int(len(steps) > 0 and int(steps[0]) in differ)
        steps = steps[begin : len(steps) - int(len(steps) > begin and int(steps[-1]) in differ)]
    kept = [rank.where(np.isin(rank.step, steps)) for rank in ranks]
    orders = [np.lexsort((rank.ends, _sizes(rank))) for rank in kept]
    places = np.argsort(orders[0])
    for rank, order in zip(kept[1:], orders[1:], strict=True):
        if (
            len(order) != len(places)
            or (_sizes(rank)[order] != _sizes(kept[0])[orders[0]]).any()
            or (np.abs(rank.step[order] - kept[0].step[orders[0]]) > 1).any()
        ):
            differ = _differences([kept[0], rank])
            raise ValueError(differ[min(differ)])
    return [rank.where(order[places]) for rank, order in zip(kept, orders, strict=True)]


def _differences(ranks: Sequence[RankProfile]) -> dict[int, str]:
    """Return in words how the collectives of the ranks differ, by step."""
    found: dict[int, str] = {}
    first = _by_step(ranks[0])
    for rank in ranks[1:]:
        for step, sizes in _by_step(rank).items():
            expected = first[step]
            if len(sizes) != len(expected):
                found[step] = (
                    f"step {step} has {len(expected)} collectives in rank {ranks[0].rank} and "
                    f"{len(sizes)} in rank {rank.rank}"
                )
            elif only := Counter(expected.tolist()) - Counter(sizes.tolist()):
                one = next(iter(only))
                other = next(iter(Counter(sizes.tolist()) - Counter(expected.tolist())))
                found[step] = (
                    f"step {step} has {_words(one)} in rank {ranks[0].rank} and {_words(other)} "
                    f"in its place in rank {rank.rank}"
                )
    return found


def _by_step(rank: RankProfile) -> dict[int, Ints]:
    """Return the sizes of the collectives of each step, in bytes."""
    steps, places = np.unique(rank.step, return_index=True)
    return dict(zip(steps.tolist(), np.split(_sizes(rank), places[1:]), strict=True))


def _sizes(rank: RankProfile) -> Ints:
    """Return the size of each collective; -1 where it is no all-reduce: those may differ."""
    return np.where(rank.is_all_reduce, rank.size_bytes, -1)


def _words(size_bytes: int) -> str:
    return "no all-reduce" if size_bytes < 0 else f"an all-reduce of {size_bytes:,} bytes"


def _periods(arrived: Floats, ended: Floats, size_bytes: Ints) -> Periods:
    """Return the periods in which all-reduces are under way.

    Args:
        arrived: When the last rank began each all-reduce, shape (M,), on one clock.
        ended: When the last rank ended it, shape (M,).
    """
    ended = np.maximum(ended, arrived + _SHORTEST)
    periods = merged(arrived, ended)
    which = np.searchsorted(periods[:, 0], arrived, side="right") - 1
    return Periods(
        np.bincount(which, minlength=len(periods)),
        np.bincount(which, size_bytes, len(periods)).astype(np.int64),
        periods[:, 1] - periods[:, 0],
    )
