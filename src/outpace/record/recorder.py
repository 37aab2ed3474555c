"""Observes a run, or one process of it: writes rows of the trace and keeps running sums.

Memory does not grow with the run: there are only sums and histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from outpace.predict.interface import Wait
from outpace.record.totals import Totals
from outpace.record.trace import NONE, TraceRows
from outpace.support.units import Time
from outpace.sync.decision import Decision
from outpace.sync.observer import NOBODY, Outcome


class Average(Protocol):
    """One worker's part in an all-reduce, or in an average of two."""

    @property
    def number(self) -> int:
        """Among those of the run, from 0."""

    @property
    def members(self) -> Sequence[int]:
        """The workers that took part; of an average of two first the one that asked for it."""

    @property
    def weight(self) -> int:
        """Iterations of this worker in it."""

    @property
    def joined(self) -> Time:
        """When this worker joined (ns since the start of the run)."""

    @property
    def began(self) -> Time:
        """When all members had joined."""

    @property
    def ended(self) -> Time:
        """When this worker had the result."""


class Recorder:
    """Records what happens. Implements `ShardObserver`.

    Args:
        on_update: called with shard and version when the parameters have a new version.
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
        """Count gradients that were applied without servers.

        Args:
            staleness: of each gradient, if all workers have the parameters in common.
        """
        self.totals.applied += count
        for each in staleness:
            self._applied(0, each)

    def averaged(self, worker: int, iteration: int, average: Average, computing: Time) -> None:
        """Note that a worker has the result of an all-reduce, or of an average of two.

        Args:
            iteration: the last one before the worker joined.
            computing: ns that the worker computed meanwhile.
        """
        joined, began, ended = average.joined, average.began, average.ended
        members, totals = average.members, self.totals
        totals.all_reduces += worker == members[0]  # so that each is counted once
        totals.joined += 1
        totals.windows += average.weight
        totals.reducing += ended - joined
        totals.overlapped += computing
        self._rows.all_reduce(worker, iteration, joined, began, ended, average.number, len(members))

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
