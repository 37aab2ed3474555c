"""Iterations, computation and all-reduces of a data-parallel run whose ranks were profiled.

An iteration of a rank lasts from the end of a step's last all-reduce until the end of the last
all-reduce of the next step; a step without an all-reduce does not count. So it contains the update
of the parameters, loading data, and the forward and backward pass up to the next synchronisation,
as an iteration of the simulation does. Steps that only accumulate gradients (`no_sync`) are part of
the iteration that ends with an all-reduce.

*Compute* is the iteration without the time in which the rank did nothing but wait for a collective
(`waits`). DDP sends its buckets during the backward pass: the time in which the rank computes
meanwhile is computation. So the time that communication costs by slowing down processors is part of
it.

*Exposed* is the rest of an iteration, beyond the compute time of its slowest rank: how much longer
the all-reduces make an iteration. It is less than the time they take, where they overlap with the
backward pass.

An all-reduce *takes* the time from its last arrival, the latest begin of all ranks, until its end,
the latest end of all ranks; ranks that arrived before have only waited. All-reduces that overlap
share the network and are counted as one period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np

from outpace.cluster.calibration import Flags, Floats, Ints
from outpace.cluster.calibration.all_reduces import Alone
from outpace.cluster.calibration.clocks import Clock, clocks_of
from outpace.cluster.calibration.waits import merged, total_before, waits

_SHORTEST: Final = 1e-7  # s; the shortest period and run time
_SAID: Final = 5  # number of sizes of all-reduces that an error names at most
_PARTIAL: Final = 2  # steps at each end that may be recorded in part


@dataclass(frozen=True, slots=True, eq=False)
class RankProfile:
    """Computation and collectives of one rank, in s of its own clock.

    Args:
        name: Name for errors, such as `rank 1 (rank1.json)`.
        busy: Intervals in which the rank computed, shape (B, 2), disjoint and in order.
        step: Number of the step in which it issued each collective, shape (M,), not falling.
        begins, ends: Times of the rank's collectives, shape (M,).
        size_bytes: Size of the input tensors of each collective, shape (M,).
        is_all_reduce: True for each all-reduce, shape (M,).
        late_s: Largest delay with which the end of a collective is noted: `waits.LATE_S` for Gloo.
    """

    name: str
    busy: Floats
    step: Ints
    begins: Floats
    ends: Floats
    size_bytes: Ints
    is_all_reduce: Flags
    late_s: float

    def where(self, chosen: Flags | Ints) -> RankProfile:
        """Return the profile with the chosen collectives only. chosen: a mask, or their places."""
        names = "step", "begins", "ends", "size_bytes", "is_all_reduce"
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


@dataclass(frozen=True, slots=True, eq=False)
class Profiled:
    """A profiled run: T iterations of N ranks.

    Args:
        starts: Start of each iteration in s since the start of the first one, shape (T, N).
        compute: Compute time in s, shape (T, N).
        exposed: Exposed time in s, shape (T,); below 0 if no rank waited and their ends differ.
        size_bytes: Size of all all-reduces of each iteration together, shape (T,).
        alone: The kinds of periods in which all-reduces were under way.
        clocks: The clock of each rank, compared with rank 0.
        spread_s: Median difference between the ends of an all-reduce in different ranks, on one
            clock.
    """

    starts: Floats
    compute: Floats
    exposed: Floats
    size_bytes: Ints
    alone: Alone
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
        ValueError: if the ranks do not have the same collectives in the same steps, or fewer than
            two steps have an all-reduce; with a text for the user.
    """
    ranks = _matched(ranks)
    first = ranks[0]
    is_all = first.is_all_reduce
    steps = np.unique(first.step[is_all])
    if len(steps) < 2:
        raise ValueError(f"{len(steps)} of their steps have an all-reduce")
    clocks = clocks_of(np.stack([rank.ends[is_all] for rank in ranks], axis=1))
    of_step = np.searchsorted(steps, first.step[is_all])
    lengths, waited, starts, begins, ends = [], [], [], [], []
    for rank, clock in zip(ranks, clocks, strict=True):
        # The last end of an all-reduce in each of these steps: the border of two iterations.
        border = np.full(len(steps), -np.inf)
        np.maximum.at(border, of_step, rank.ends[is_all])
        lengths.append(np.diff(border))
        in_waits = waits(rank.busy, rank.begins, rank.ends, rank.late_s)
        waited.append(np.diff(total_before(in_waits, border)))
        starts.append(clock.common(border)[:-1])
        begins.append(clock.common(rank.begins[is_all]))
        ends.append(clock.common(rank.ends[is_all]))
    compute = np.maximum(np.array(lengths) - waited, _SHORTEST)
    size_bytes = first.size_bytes[is_all]
    return Profiled(
        np.array(starts).T - np.min(starts),
        compute.T,
        np.mean(lengths, axis=0) - compute.max(axis=0),
        np.bincount(of_step, size_bytes, len(steps))[1:].astype(np.int64),
        _alone(np.max(begins, axis=0), np.max(ends, axis=0), size_bytes),
        clocks,
        float(np.median(np.max(ends, axis=0) - np.min(ends, axis=0))),
    )


def _matched(ranks: Sequence[RankProfile]) -> list[RankProfile]:
    """Return the ranks with the same collectives in the same places.

    All ranks leave a collective at nearly the same time. So among collectives of equal size, the
    k-th to end in one rank is the k-th to end in every other rank. The order of their beginnings is
    not reliable: Gloo's threads begin two collectives that are issued together in either order, and
    may begin the last one of a step after the next step has begun. The first two and the last two
    steps may be recorded only in part; they are left out if ranks differ there.
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
            raise ValueError(next(iter(_differences([kept[0], rank]).values())))
    return [rank.where(order[places]) for rank, order in zip(kept, orders, strict=True)]


def _differences(ranks: Sequence[RankProfile]) -> dict[int, str]:
    """Describe how the collectives of the ranks differ, by step."""
    found: dict[int, str] = {}
    for rank in ranks[1:]:
        for step in np.unique(rank.step).tolist():
            one, other = (
                np.sort(_sizes(each)[each.step == step]).tolist() for each in (ranks[0], rank)
            )
            if one != other:
                found[step] = (
                    f"step {step} has all-reduces of {_words(one)} in {ranks[0].name}, and of "
                    f"{_words(other)} in {rank.name}"
                )
    return found


def _sizes(rank: RankProfile) -> Ints:
    """Return the size of each all-reduce, and -1 for other collectives, whose sizes may differ."""
    return np.where(rank.is_all_reduce, rank.size_bytes, -1)


def _words(sizes: Sequence[int]) -> str:
    return ", ".join("no" if size < 0 else f"{size:,}" for size in sizes[-_SAID:]) + " bytes"


def _alone(arrived: Floats, ended: Floats, size_bytes: Ints) -> Alone:
    """Return the kinds of periods in which all-reduces run.

    Args:
        arrived: Time when the last rank began each all-reduce, shape (M,), on one clock.
        ended: Time when the last rank ended each all-reduce, shape (M,).
    """
    ended = np.maximum(ended, arrived + _SHORTEST)
    periods = merged(arrived, ended)
    which = np.searchsorted(periods[:, 0], arrived, side="right") - 1
    return Alone.of(
        np.bincount(which, minlength=len(periods)),
        np.bincount(which, size_bytes, len(periods)).astype(np.float64),
        periods[:, 1] - periods[:, 0],
    )
