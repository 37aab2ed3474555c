"""Notes the averages that a worker without servers joins: their times, and what they averaged."""

from __future__ import annotations

from outpace.engine.peers import PendingExchange, SinceJoining
from outpace.real.collective.reductions import PendingReduction
from outpace.real.net.clock import RealClock
from outpace.real.node.timing import Recorded, TimingRows
from outpace.record.recorder import Recorder
from outpace.record.timing import ALL_REDUCE, EXCHANGE
from outpace.support.units import Time


class JoinedAverages(SinceJoining):
    """The all-reduces and exchanges of a worker, and what it computes between them.

    Args:
        has_common: True if the workers have a common model, which all-reduces change.
        is_recorded: says of which iterations the times are noted.
    """

    def __init__(
        self,
        worker: int,
        clock: RealClock,
        recorder: Recorder,
        timing: TimingRows,
        is_recorded: Recorded,
        *,
        has_common: bool,
    ) -> None:
        super().__init__()
        self._worker, self._clock, self._has_common = worker, clock, has_common
        self._recorder, self._timing, self._is_recorded = recorder, timing, is_recorded
        self._given: list[int] = []  # the `versions` of those in the pending all-reduce

    def joins_all_reduce(self) -> list[int]:
        self._given = super().joins_all_reduce()
        return self._given

    def reduced(self, part: PendingReduction) -> None:
        """The worker has the result of an all-reduce."""
        if part.is_finite and self._has_common and part.value is not None:
            # The result of all-reduce n is commit n.
            stale = (part.number - version for version in self._given)
            self._recorder.gradients_applied(part.weight, stale)
        self._recorder.totals.bytes_sent += part.bytes_sent
        self._averaged(part)
        if self._is_recorded(iteration := self.joined_after):
            when = part.joined, self._clock.now, part.span
            self._timing.span(ALL_REDUCE, self._worker, iteration, *when, sent_bytes=part.nbytes)

    def exchanged(self, pair: PendingExchange, nbytes: int, span: tuple[Time, Time]) -> None:
        """The worker has averaged with another one.

        Args:
            nbytes: that each of the two sent.
            span: when the communication thread was at it.
        """
        self._recorder.totals.messages += 2
        self._recorder.totals.bytes_sent += 2 * nbytes
        self._averaged(pair)
        if self._is_recorded(iteration := self.joined_after):
            when, partner = (pair.joined, self._clock.now, span), pair.members[1]
            self._timing.span(
                EXCHANGE, self._worker, iteration, *when, nbytes, nbytes, partner=partner
            )

    def _averaged(self, average: PendingReduction | PendingExchange) -> None:
        computing = self.computing_between(average.joined, average.ended)
        self._recorder.averaged(self._worker, self.joined_after, average, computing)
