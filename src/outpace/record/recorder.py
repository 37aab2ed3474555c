"""Observes a run, or one of its processes: writes rows of the trace and adds up sums.

Memory does not grow with the run: there are only sums and histograms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from outpace.predict.interface import Wait
from outpace.record.tables import NONE
from outpace.record.totals import Totals
from outpace.record.trace import (
    ALL_REDUCE,
    COLLECTIVE,
    CUT_OFF,
    ITERATION,
    PULL,
    PUSH,
    TraceRows,
    pack_iteration,
    pack_pull,
    pack_push,
)
from outpace.support.units import Time, nanoseconds
from outpace.sync.decision import Decision
from outpace.sync.messages import NO_SERVER, Pull, Push, Reply
from outpace.sync.observer import NO_WORKER, Outcome


class Average(Protocol):
    """One worker's part in an all-reduce, or in an average of two.

    Attributes:
        number: number of the all-reduce or average in the run, from 0.
        members: the workers in the average. In an average of two, the worker that asked comes
            first.
        weight: number of this worker's iterations that the average contains.
        joined: time when this worker joined (ns since the start of the run).
        began: time when all members had joined.
        ended: time when this worker had the result.
    """

    number: int
    joined: Time
    began: Time
    ended: Time

    @property
    def members(self) -> Sequence[int]: ...

    @property
    def weight(self) -> int: ...


class Recorder:
    """Records the events of a run. Implements `ShardObserver`."""

    def __init__(self, rows: TraceRows) -> None:
        self.totals = Totals()
        self._rows, self._row, self._append = rows, rows.row, rows.append

    # -- workers ---------------------------------------------------------------

    def gradient_computed(self, worker: int) -> None:
        iterations = self.totals.iterations
        iterations[worker] = iterations.get(worker, 0) + 1

    def gradient_unusable(self) -> None:
        """Count a gradient that is not finite, or that belongs to a step that GradScaler skips."""
        self.totals.unusable += 1

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
        last_shard: int = NONE,
    ) -> None:
        held = max(0, min(held, finished - computed))  # the clocks of two processes can differ
        self.totals.add_times(started, finished, computed, held)
        if last_shard == NO_SERVER:
            self.totals.skipped_pulls += 1
            last_shard = NONE
        span = iteration, started, finished
        row = pack_iteration(ITERATION, worker, last_shard, *span, computed, held)
        self._rows.extend([row])

    def untimed(self, worker: int, iteration: int, begun: Time, ended: Time) -> None:
        """Count a span that a script has marked with `outpace.untimed`.

        Args:
            iteration: the iteration whose gradient the worker computes before and after the span.
            begun, ended: times on the worker's clock, in ns since the start of the run.
        """
        self.totals.untimed += ended - begun

    def iteration_closed(
        self, iteration: int, opened: Time, closed: Time, wait: Wait, count: int
    ) -> None:
        totals = self.totals
        totals.closed += 1
        totals.counted += count
        totals.open += closed - opened
        self._row(
            CUT_OFF,
            **_span(iteration, opened, closed),
            computed_ns=opened + nanoseconds(wait.until_s) if wait.until_s < 1e9 else NONE,
            clock=count,
            bound=int(wait.count) if math.isfinite(wait.count) else NONE,
        )

    def gradients_applied(self, count: int, staleness: Iterable[int] = ()) -> None:
        """Count gradients that were applied without servers.

        Args:
            staleness: the staleness of each gradient, if all workers share the parameters.
        """
        self.totals.applied += count
        for each in staleness:
            histogram = self.totals.staleness.setdefault(0, {})
            histogram[each] = histogram.get(each, 0) + 1

    def averaged(self, worker: int, iteration: int, average: Average, computing: Time) -> None:
        """Note that a worker has the result of an all-reduce, or of an average of two.

        Args:
            iteration: the last iteration before the worker joined.
            computing: time (ns) that the worker computed between joining and the result.
        """
        joined, began, ended = average.joined, average.began, average.ended
        members, totals = average.members, self.totals
        totals.all_reduces += worker == members[0]  # count each all-reduce once
        totals.joined += 1
        totals.windows += average.weight
        totals.reducing += ended - joined
        totals.overlapped += computing
        self._row(
            ALL_REDUCE,
            worker=worker,
            **_span(iteration, joined, ended),
            computed_ns=began,
            version=average.number,
            clock=len(members),
        )

    def collective(
        self, worker: int, iteration: int, number: int, joined: Time, began: Time, ended: Time
    ) -> None:
        """Note a collective that a script has called itself, besides the training's messages.

        Args:
            iteration: the worker's present or next iteration.
            number: number of the collective among the script's collectives, from 0.
            joined: time when this worker joined (ns since the start of the run).
            began: time when all workers had joined.
            ended: time when this worker had the result.
        """
        self.totals.collectives += worker == 0
        self.totals.collecting += ended - joined
        self._row(
            COLLECTIVE,
            worker=worker,
            **_span(iteration, joined, ended),
            computed_ns=began,
            version=number,
        )

    # -- shards ----------------------------------------------------------------

    def push_settled(
        self, shard: int, push: Push, arrived: Time, settled: Time, outcome: Outcome, staleness: int
    ) -> None:
        if outcome is Outcome.APPLIED:
            histograms = self.totals.staleness
            try:
                histograms[shard][staleness] += 1
            except KeyError:  # the first all-reduce
                histograms.setdefault(shard, {})[staleness] = 1
        if shard == 0:
            self._count(outcome)
        stale = staleness if staleness >= 0 else NONE
        span = push.iteration, arrived, settled
        self._append(pack_push(PUSH, push.worker, shard, *span, push.version, stale, outcome))

    def _count(self, outcome: Outcome) -> None:
        """Count a push to shard 0, which stands for its whole gradient."""
        totals = self.totals
        if outcome is Outcome.APPLIED:
            totals.applied += 1
        elif outcome is Outcome.DROPPED:
            totals.dropped += 1
        elif outcome is Outcome.ABSTAINED:
            totals.abstained += 1
        elif outcome is Outcome.SKIPPED:
            totals.skipped_pushes += 1

    def pull_answered(
        self, reply: Reply, arrived: Time, decision: Decision, released_by: int
    ) -> None:
        shard = reply.shard
        if released_by != NO_WORKER:
            self._delay(shard)
        by = NONE if released_by == NO_WORKER else released_by
        span = reply.iteration, arrived, arrived + reply.held
        judged = decision.reason, decision.lead, decision.bound
        parameters = reply.version, reply.clock
        self._append(pack_pull(PULL, reply.worker, shard, *span, *parameters, *judged, by))

    def pull_abandoned(self, shard: int, pull: Pull, arrived: Time, decision: Decision) -> None:
        self._delay(shard)
        self._row(
            PULL,
            worker=pull.worker,
            shard=shard,
            iteration=pull.iteration,
            start_ns=arrived,
            reason=decision.reason,
            lead=decision.lead,
            bound=decision.bound,
        )

    def _delay(self, shard: int) -> None:
        delayed = self.totals.delayed
        delayed[shard] = delayed.get(shard, 0) + 1


def _span(iteration: int, start: Time, end: Time) -> dict[str, int]:
    """Return columns that most rows have."""
    return {"iteration": iteration, "start_ns": start, "end_ns": end}
