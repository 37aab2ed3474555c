"""Listens to a run, or to one process of it: writes rows and keeps the running sums.

Memory does not grow with the run: sums and a histogram of staleness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from outpace.predict.interface import Wait
from outpace.record.trace import NONE, TraceRows
from outpace.support.units import Time, seconds
from outpace.sync.decision import Decision
from outpace.sync.observer import NOBODY, Outcome


class Totals(msgspec.Struct, array_like=True):
    """Running sums of a run, or of one process's part of it. Times in ns, over all workers."""

    iterations: dict[int, int] = {}  # worker -> gradients computed
    applied: int = 0  # whole gradients, as shard 0 counts
    dropped: int = 0
    abstained: int = 0  # pushes without a gradient
    delayed: dict[int, int] = {}  # shard -> pulls
    staleness: dict[int, dict[int, int]] = {}  # shard -> histogram
    compute: int = 0
    communicate: int = 0
    wait: int = 0
    loss_sum: float = 0.0  # of all mini-batches
    losses: int = 0
    closed: int = 0  # iterations that were cut off, all workers together
    counted: int = 0  # gradients that counted in them
    open: int = 0  # how long they lasted
    messages: int = 0  # pushes, pulls, replies and acknowledgements, each per shard
    bytes_sent: int = 0  # of tensors
    all_reduces: int = 0  # that were completed
    joined: int = 0  # by how many workers, all together
    windows: int = 0  # iterations that were in them
    reducing: int = 0  # from joining to the result
    overlapped: int = 0  # of which the worker was computing

    def add(self, other: Totals) -> None:
        """Add another part's sums to these."""
        _add(self.iterations, other.iterations)
        _add(self.delayed, other.delayed)
        for shard, histogram in other.staleness.items():
            _add(self.staleness.setdefault(shard, {}), histogram)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def whole_histogram(self) -> dict[int, int]:
        """Staleness -> number of (gradient, shard)."""
        whole: dict[int, int] = {}
        for histogram in self.staleness.values():
            _add(whole, histogram)
        return whole

    def summary_of(self, shard: int) -> dict[str, Any]:
        """The part of it about one server."""
        return {
            "delayed_pulls": self.delayed.get(shard, 0),
            "staleness": _staleness(self.staleness.get(shard, {})),
        }

    def summary(self, workers: int) -> dict[str, Any]:
        """The part of summary.json that is about what happened."""
        return {
            "iterations": [self.iterations.get(worker, 0) for worker in range(workers)],
            "gradients_applied": self.applied,
            "gradients_dropped": self.dropped,
            "pushes_abstained": self.abstained,
            "delayed_pulls": sum(self.delayed.values()),
            "staleness": _staleness(self.whole_histogram()),
            "seconds": {
                "compute": seconds(self.compute) / workers,
                "communicate": seconds(self.communicate) / workers,
                "wait": seconds(self.wait) / workers,
            },
            "messages": self.messages,
            "bytes_sent": self.bytes_sent,
            **self._cut_offs(),
        }

    def summary_of_peers(self) -> dict[str, Any]:
        """The part of it about synchronizations without servers."""
        return {
            "synchronizations": self.all_reduces,
            "mean_window": self.windows / self.joined if self.joined else None,
            "overlap_fraction": self.overlapped / self.reducing if self.reducing else None,
        }

    def _cut_offs(self) -> dict[str, Any]:
        if not self.closed:
            return {}
        mean_s = seconds(self.open) / self.closed
        means = {"mean_count": self.counted / self.closed, "mean_iteration_s": mean_s}
        return {"cut_offs": {"iterations": self.closed, **means}}


def _add(mine: dict[int, int], theirs: dict[int, int]) -> None:
    for key, value in theirs.items():
        mine[key] = mine.get(key, 0) + value


def _staleness(histogram: dict[int, int]) -> dict[str, Any]:
    count = sum(histogram.values())
    total = sum(staleness * n for staleness, n in histogram.items())
    return {
        "mean": total / count if count else None,
        "max": max(histogram, default=None),
        "histogram": {str(k): histogram[k] for k in sorted(histogram)},
    }


_SUMS: Final = tuple(
    entry.name for entry in msgspec.structs.fields(Totals) if entry.type in (int, float)
)


class Recorder:
    """Takes down what happens. Implements `ShardObserver`.

    `on_update(shard, version)` is called with every new version.
    """

    def __init__(self, rows: TraceRows, on_update: Callable[[int, int], None]) -> None:
        self.totals = Totals()
        self._rows, self._on_update = rows, on_update

    # -- workers ---------------------------------------------------------------

    def gradient_computed(self, worker: int) -> None:
        iterations = self.totals.iterations
        iterations[worker] = iterations.get(worker, 0) + 1

    def batch_loss(self, loss: float) -> None:
        self.totals.loss_sum += loss
        self.totals.losses += 1

    def iteration_finished(
        self,
        worker: int,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_shard: int,
    ) -> None:
        totals = self.totals
        totals.compute += computed - started
        totals.wait += held
        totals.communicate += finished - computed - held
        self._rows.iteration(worker, iteration, started, computed, finished, held, last_shard)

    def iteration_closed(
        self, iteration: int, opened: Time, closed: Time, wait: Wait, count: int
    ) -> None:
        totals = self.totals
        totals.closed += 1
        totals.counted += count
        totals.open += closed - opened
        self._rows.cut_off(iteration, opened, closed, wait, count)

    def gradients_applied(self, count: int, staleness: Iterable[int] = ()) -> None:
        """They are in the parameters now; without servers.

        staleness: of each, where there is a common model to be stale against.
        """
        self.totals.applied += count
        for each in staleness:
            self._applied(0, each)

    def all_reduced(
        self,
        worker: int,
        iteration: int,
        joined: Time,
        began: Time,
        ended: Time,
        number: int,
        members: int,
        iterations: int,
        computing: Time,
        *,
        counts: bool,
    ) -> None:
        """A worker has the result of an all-reduce with so many iterations of its own.

        computing: how long it computed meanwhile. counts: of its members only one does.
        """
        totals = self.totals
        totals.all_reduces += counts
        totals.joined += 1
        totals.windows += iterations
        totals.reducing += ended - joined
        totals.overlapped += computing
        self._rows.all_reduce(worker, iteration, joined, began, ended, number, members)

    # -- shards ----------------------------------------------------------------

    def push_settled(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        settled: Time,
        version: int,
        outcome: Outcome,
        staleness: int,
    ) -> None:
        totals = self.totals
        if outcome is Outcome.APPLIED:
            self._applied(shard, staleness)
            totals.applied += shard == 0
        elif outcome is Outcome.DROPPED:
            totals.dropped += shard == 0
        elif outcome is Outcome.ABSTAINED:
            totals.abstained += shard == 0
        self._rows.push(shard, worker, iteration, arrived, settled, version, outcome, staleness)

    def _applied(self, shard: int, staleness: int) -> None:
        histogram = self.totals.staleness.get(shard)
        if histogram is None:
            histogram = self.totals.staleness[shard] = {}
        histogram[staleness] = histogram.get(staleness, 0) + 1

    def pull_answered(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        answered: Time,
        version: int,
        clock: int,
        decision: Decision,
        released_by: int,
    ) -> None:
        if released_by != NOBODY:
            self._delay(shard)
        self._rows.pull(
            shard, worker, iteration, arrived, answered, version, clock, decision, released_by
        )

    def pull_abandoned(
        self, shard: int, worker: int, iteration: int, arrived: Time, decision: Decision
    ) -> None:
        self._delay(shard)
        self._rows.pull(shard, worker, iteration, arrived, NONE, NONE, NONE, decision, NOBODY)

    def _delay(self, shard: int) -> None:
        delayed = self.totals.delayed
        delayed[shard] = delayed.get(shard, 0) + 1

    def updated(self, shard: int, version: int) -> None:
        self._on_update(shard, version)
