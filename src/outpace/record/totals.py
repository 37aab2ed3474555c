"""Running sums of a run, and the parts of summary.json that are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec

from outpace.errors import DivergenceError
from outpace.support.units import Time, seconds


class Totals(msgspec.Struct, array_like=True):
    """Running sums of a run, or of one process in it. Times are in ns, summed over workers."""

    iterations: dict[int, int] = {}  # worker -> gradients computed
    applied: int = 0  # number of whole gradients, as counted by shard 0
    dropped: int = 0
    abstained: int = 0  # number of pushes without a gradient, except skipped pushes
    unusable: int = 0  # gradients that were not finite, or belonged to a skipped step
    skipped_pushes: int = 0
    skipped_pulls: int = 0
    delayed: dict[int, int] = {}  # shard -> pulls
    staleness: dict[int, dict[int, int]] = {}  # shard -> histogram
    compute: int = 0
    communicate: int = 0
    wait: int = 0
    untimed: int = 0  # computation of scripts that is not part of an iteration (ns)
    loss_sum: float = 0.0  # sum over all mini-batches
    losses: int = 0
    closed: int = 0  # iterations that were cut off, all workers together
    counted: int = 0  # gradients that counted in the closed iterations
    open: int = 0  # duration of the closed iterations (ns)
    messages: int = 0  # pushes, pulls, replies and acknowledgements, each per shard
    bytes_sent: int = 0  # size of the tensors sent
    all_reduces: int = 0  # number of completed all-reduces
    joined: int = 0  # number of pairs (worker, all-reduce)
    windows: int = 0  # iterations of workers that were in all-reduces
    reducing: int = 0  # ns from joining to the result
    overlapped: int = 0  # part of `reducing` in which the worker was computing (ns)
    collectives: int = 0  # collectives of scripts, besides those that exchange gradients
    collecting: int = 0  # ns from joining them to the result

    def add(self, other: Totals) -> None:
        """Add the sums of another part of the run."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                _add(mine, theirs)
            else:
                setattr(self, name, mine + theirs)

    def copy(self) -> Totals:
        """Return a copy that does not change with these sums."""
        return deepcopy(self)

    def add_times(
        self, started: Time, finished: Time, computed: Time, held: Time, sign: int = 1
    ) -> None:
        """Add the times of an iteration (ns); sign: -1 to take them back."""
        self.compute += sign * (computed - started)
        self.wait += sign * held
        self.communicate += sign * (finished - computed - held)

    def whole_histogram(self) -> dict[int, int]:
        """Return the number of pairs (gradient, shard) for each staleness."""
        whole: dict[int, int] = {}
        for histogram in self.staleness.values():
            _add(whole, histogram)
        return whole

    def summary_of(self, shard: int) -> dict[str, Any]:
        """Return the part of summary.json about one server."""
        return {
            "delayed_pulls": self.delayed.get(shard, 0),
            "staleness": _staleness(self.staleness.get(shard, {})),
        }

    def summary(self, workers: int) -> dict[str, Any]:
        """Return the part of summary.json about iterations, gradients and messages."""
        cut_offs = {
            "iterations": self.closed,
            "mean_count": self.counted / max(self.closed, 1),
            "mean_iteration_s": seconds(self.open) / max(self.closed, 1),
        }
        collectives = {
            "count": self.collectives,
            "seconds": seconds(self.collecting) / workers,
        }
        return {
            "iterations": [self.iterations.get(worker, 0) for worker in range(workers)],
            "gradients_applied": self.applied,
            "gradients_dropped": self.dropped,
            "pushes_abstained": self.abstained,
            "pushes_skipped": self.skipped_pushes,
            "pulls_skipped": self.skipped_pulls,
            "delayed_pulls": sum(self.delayed.values()),
            "staleness": _staleness(self.whole_histogram()),
            "seconds": {
                "compute": seconds(self.compute) / workers,
                "communicate": seconds(self.communicate) / workers,
                "wait": seconds(self.wait) / workers,
            },
            "untimed_s": seconds(self.untimed) / workers,
            "messages": self.messages,
            "bytes_sent": self.bytes_sent,
            **({"cut_offs": cut_offs} if self.closed else {}),
            **({"collectives": collectives} if self.collectives else {}),
        }

    def require_trained(self) -> None:
        """Raise DivergenceError if gradients were computed but none could be used."""
        if self.unusable and not self.applied:
            raise DivergenceError(
                f"nothing was trained: none of the {self.unusable:,} gradients could be used, "
                "because they were not finite or their steps were skipped; check the data and the "
                "loss of the first iteration, and try a smaller learning rate"
            )

    def summary_of_peers(self) -> dict[str, Any]:
        """Return the part of summary.json about synchronizations without servers."""
        return {
            "synchronizations": self.all_reduces,
            "mean_window": self.windows / self.joined if self.joined else None,
            "overlap_fraction": self.overlapped / self.reducing if self.reducing else None,
        }


def _add(mine: dict[int, Any], theirs: Mapping[int, Any]) -> None:
    """Add numbers, or dictionaries of numbers key by key."""
    for key, value in theirs.items():
        if isinstance(value, dict):
            _add(mine.setdefault(key, {}), value)
        else:
            mine[key] = mine.get(key, 0) + value


def _staleness(histogram: dict[int, int]) -> dict[str, Any]:
    count = sum(histogram.values())
    total = sum(staleness * n for staleness, n in histogram.items())
    return {
        "mean": total / count if count else None,
        "max": max(histogram, default=None),
        "histogram": {str(k): histogram[k] for k in sorted(histogram)},
    }
