"""Notes the averages that a worker without servers joins: their times, and what they averaged."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.real.collective.exchanges import PendingExchange
from outpace.real.collective.reductions import PendingReduction
from outpace.real.net.clock import RealClock
from outpace.real.node.timing import Recorded, TimingRows
from outpace.record.recorder import Recorder
from outpace.record.timing import ALL_REDUCE, EXCHANGE
from outpace.support.units import Time


class JoinedAverages:
    """The all-reduces and exchanges of a worker, and what it computes between them.

    Args:
        has_common: True if the workers have a common model, which all-reduces change.
        is_recorded: says of which iterations the times are noted.

    Attributes:
        versions: of the common model at which gradients were computed that no all-reduce has yet.
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
        self._worker, self._clock, self._has_common = worker, clock, has_common
        self._recorder, self._timing, self._is_recorded = recorder, timing, is_recorded
        self.versions: list[int] = []
        self._given: list[int] = []  # the same for those in the pending all-reduce
        self._iteration = -1  # the last iteration computed
        self._joined_after = -1  # the iteration after which this worker last joined others
        self._busy: list[tuple[Time, Time]] = []  # spans of computation since then
        self._busy_since: Time | None = None

    @property
    def computed(self) -> int:
        """Iterations until the last one that was computed here; 0: none was."""
        return self._iteration + 1

    # -- what the worker does -------------------------------------------------------------

    def computes(self) -> None:
        """The worker begins to compute."""
        self._busy_since = self._clock.now

    def has_computed(self, iteration: int, version: int | None) -> None:
        """The worker has computed this iteration.

        version: of the common model at which the gradient was computed; None: none was.
        """
        assert self._busy_since is not None
        self._busy.append((self._busy_since, self._clock.now))
        self._busy_since, self._iteration = None, iteration
        if version is not None:
            self.versions.append(version)

    def joins_all_reduce(self) -> None:
        """The worker joins an all-reduce with what it has computed so far."""
        self._busy.clear()
        self._given, self.versions = self.versions, []
        self._joined_after = self._iteration

    def joins_exchange(self, iteration: int) -> None:
        """The worker averages with another one, after or beside this iteration."""
        self._busy.clear()
        self._joined_after = iteration

    # -- their results --------------------------------------------------------------------

    def reduced(self, part: PendingReduction) -> None:
        """The worker has the result of an all-reduce."""
        if part.is_finite and self._has_common and part.value is not None:
            # The result of all-reduce n is commit n.
            stale = (part.number - version for version in self._given)
            self._recorder.gradients_applied(part.weight, stale)
        self._recorder.totals.bytes_sent += part.bytes_sent
        self._averaged(part)
        if self._is_recorded(iteration := self._joined_after):
            when = part.joined, self._clock.now, part.span
            self._timing.span(ALL_REDUCE, self._worker, iteration, *when, sent_bytes=part.nbytes)

    def exchanged(self, pair: PendingExchange) -> None:
        """The worker has averaged with another one."""
        self._recorder.totals.messages += 2
        self._recorder.totals.bytes_sent += 2 * pair.nbytes
        self._averaged(pair)
        if self._is_recorded(iteration := self._joined_after):
            when = pair.joined, self._clock.now, pair.span
            sizes, partner = (pair.nbytes, pair.nbytes), pair.members[1]
            self._timing.span(EXCHANGE, self._worker, iteration, *when, *sizes, partner=partner)

    def _averaged(self, average: PendingReduction | PendingExchange) -> None:
        computing = self._computing_between(average.joined, average.ended)
        self._recorder.averaged(self._worker, self._joined_after, average, computing)

    def _computing_between(self, joined: Time, ended: Time) -> Time:
        spans: Sequence[tuple[Time, Time]] = self._busy
        if self._busy_since is not None:
            spans = [*self._busy, (self._busy_since, ended)]
        return sum(max(0, min(end, ended) - max(begin, joined)) for begin, end in spans)
