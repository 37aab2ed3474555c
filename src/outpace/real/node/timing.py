"""The rows of one process of a real run in `timing.parquet`; columns: see `record.timing`.

Times are values of time.monotonic_ns() until the rows are taken, because the time of the run may
begin later. Two processes make a row of a request; each knows its own columns.
"""

from __future__ import annotations

from array import array
from collections import deque
from time import monotonic_ns
from typing import Final

import numpy as np

from outpace.real.net.clock import RealClock
from outpace.record.tables import NONE, Table
from outpace.record.timing import SCHEMA, WIDTH, Sampling
from outpace.support.units import Time

# index of a column in a row
PLACE: Final = {name: place for place, name in enumerate(SCHEMA.names)}
NO_ARRIVAL: Final = (NONE,) * 3  # the last columns of a request without an answer

_TIMES: Final = PLACE["sent_ns"]  # this column and all later ones are times
_ANSWER_BYTES: Final = PLACE["answer_bytes"]
_ARRIVAL: Final = slice(PLACE["arrived_after_ns"], WIDTH)
_AFTER_SENT: Final = (NONE,) * (PLACE["arrived_after_ns"] - PLACE["received_after_ns"])
_UNRECEIVED: Final = (NONE,) * (PLACE["begun_ns"] - PLACE["sent_end_ns"])
_UNANSWERED: Final = (NONE,) * (PLACE["arrived_ns"] - PLACE["released_ns"])

_BLOCK: Final = 16  # number of consecutive iterations that are recorded together
_CREDIT: Final = 256  # number of iterations that are recorded even if they are short
_KNOWN: Final = 8  # number of earlier blocks that are known to be recorded


class Recorded:
    """Decides which iterations a worker records; see `Sampling`. A call is cheap."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._block, self._is = -1, False  # the last block, and whether it is recorded
        self._earlier: deque[int] = deque(maxlen=_KNOWN)  # recorded blocks
        self._interval = 1_000_000_000 // sampling.most_per_s
        self._next = 0  # time from which the next block may be recorded

    def __call__(self, iteration: int) -> bool:
        """True if the iteration is recorded."""
        block = iteration // _BLOCK
        if block == self._block:
            return self._is
        if block < self._block:
            return block in self._earlier
        now = monotonic_ns()
        self._block = block
        self._is = now >= self._next and self._sampling.recorded(iteration)
        if self._is:
            earliest = now - (_CREDIT - _BLOCK) * self._interval
            self._next = max(self._next, earliest) + _BLOCK * self._interval
            self._earlier.append(block)
        return self._is


class TimingRows:
    """Rows of SCHEMA that are to be sent to the coordinator."""

    def __init__(self, clock: RealClock) -> None:
        self.clock = clock
        self._rows = array("q")
        self.add = self._rows.extend  # appends the numbers of one row

    def span(
        self,
        what: int,
        worker: int,
        iteration: int,
        began: Time,
        ended: Time,
        inner: tuple[Time, Time] = (NONE, NONE),
        sent_bytes: int = 0,
        answer_bytes: int = 0,
        partner: int = NONE,
    ) -> None:
        """Add a span of a worker; all times are in ns since the start of the run.

        inner: the values of begun_ns and done_ns.
        """
        origin = self.clock.origin
        begun, done = inner
        if begun != NONE:
            begun += origin
        if done != NONE:
            done += origin
        head = what, worker, -1, partner, iteration, sent_bytes, answer_bytes, began + origin
        self.add((*head, *_UNRECEIVED, begun, done, *_UNANSWERED, ended + origin))

    def take(self) -> Table:
        """Return the rows since the last call, in ns since the start of the run."""
        rows, self._rows = self._rows, array("q")
        self.add = self._rows.extend
        table = np.frombuffer(rows, dtype=np.int64).reshape(-1, WIDTH).copy()
        times = table[:, _TIMES:]
        times[times != NONE] -= self.clock.origin
        return table


class OpenRequests:
    """The times of requests between two processes; a row is complete after the answer.

    An answer is for its own request and for all earlier requests of the same peer.

    Attributes:
        open: rows of the requests that are not answered yet, by peer and iteration.
    """

    def __init__(self, rows: TimingRows) -> None:
        self._rows, self.clock = rows, rows.clock
        self.open: dict[tuple[int, int], list[int]] = {}

    def _answered(self, peer: int, iteration: int) -> list[int] | None:
        """Return the row of a request that is answered now; earlier ones are also complete."""
        row = self.open.pop((peer, iteration), None)
        if self.open:
            for other, earlier in [*self.open]:
                if other == peer and earlier < iteration:
                    self._rows.add(self.open.pop((other, earlier)))
        return row

    def close(self) -> None:
        """Add the requests that were not answered."""
        for row in self.open.values():
            self._rows.add(row)
        self.open.clear()


class RequestTimes(OpenRequests):
    """The times of a worker's requests to its servers, by the worker's clock."""

    def __init__(self, rows: TimingRows, worker: int) -> None:
        super().__init__(rows)
        self._worker = worker

    def sent(
        self, what: int, server: int, iteration: int, sent_bytes: int, began: int, *, pulls: bool
    ) -> None:
        """Note a request whose transfer to the socket began at `began` and has ended.

        pulls: True: an answer is expected.
        """
        head = what, self._worker, server, NONE, iteration, sent_bytes
        stamps = NONE if pulls else 0, began, monotonic_ns()
        row = [*head, *stamps, *_AFTER_SENT, *NO_ARRIVAL]
        if pulls:
            self.open[server, iteration] = row
        else:
            self._rows.add(row)

    def arrived(self, server: int, iteration: int, answer_bytes: int) -> None:
        """Note that the message that the clock has read last is an answer."""
        if (row := self._answered(server, iteration)) is not None:
            clock = self.clock
            row[_ANSWER_BYTES] = answer_bytes
            row[_ARRIVAL] = clock.after_ns, clock.first_ns, clock.read_ns
            self._rows.add(row)
