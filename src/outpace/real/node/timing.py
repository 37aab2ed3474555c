"""The rows of one process of a real run in `timing.parquet`; columns: see `record.timing`.

Stamps are values of time.monotonic_ns() until the rows are taken, because the time of the run may
begin later. A row of a request is made by two processes; each knows its own columns.
"""

from __future__ import annotations

from array import array
from collections import deque
from time import monotonic_ns
from typing import Final

import numpy as np

from outpace.blocks.block import Value
from outpace.real.net.clock import RealClock
from outpace.record.timing import PROBE, SCHEMA, WIDTH, Sampling
from outpace.record.trace import NONE, Table
from outpace.support.units import Time
from outpace.sync.messages import Message, Pull, Push, Reply
from outpace.sync.shard import Shard

_PLACE: Final = {name: place for place, name in enumerate(SCHEMA.names)}
_TIMES: Final = _PLACE["sent_ns"]  # this column and all later ones are times
_ANSWER_BYTES: Final = _PLACE["answer_bytes"]
_BEGUN, _DONE, _RELEASED = _PLACE["begun_ns"], _PLACE["done_ns"], _PLACE["released_ns"]
_ANSWER: Final = slice(_PLACE["answer_begun_ns"], _PLACE["answered_end_ns"] + 1)
_AFTER_SENT: Final = (NONE,) * (_PLACE["arrived_after_ns"] - _PLACE["received_after_ns"])
_NO_ARRIVAL: Final = (NONE,) * 3
_UNRECEIVED: Final = (NONE,) * (_BEGUN - _PLACE["sent_end_ns"])
_UNANSWERED: Final = (NONE,) * (_PLACE["arrived_ns"] - _RELEASED)
_OF_SHARD: Final = Push | Pull
_UNSENT: Final = (NONE, NONE)
_UNHANDLED: Final = (NONE,) * (WIDTH - _BEGUN)


_BLOCK: Final = 16  # consecutive iterations that are recorded together
_CREDIT: Final = 256  # iterations that are recorded however short they are
_KNOWN: Final = 8  # earlier blocks of which is known that they are recorded


class Recorded:
    """Decides which iterations a worker records; see `Sampling`. Call it often, it is cheap."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._block, self._is = -1, False  # the last block, and whether it is recorded
        self._earlier: deque[int] = deque(maxlen=_KNOWN)  # blocks that are
        self._interval = 1_000_000_000 // sampling.most_per_s
        self._next = 0  # when the next block may be recorded

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
    """Rows of SCHEMA on their way to the coordinator."""

    def __init__(self, clock: RealClock) -> None:
        self.clock = clock
        self._rows = array("q")
        self.add = self._rows.extend  # takes the numbers of one row

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
        """Add a span of a worker, all times in ns since the start of the run.

        inner: begun_ns and done_ns.
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


class RequestTimes:
    """The times of a worker's requests to its servers, in the worker's clock.

    A reply answers its own pull and all earlier ones of that server.
    """

    def __init__(self, rows: TimingRows, worker: int) -> None:
        self._rows, self._clock, self._worker = rows, rows.clock, worker
        self._open: list[dict[int, tuple[int, ...]]] = []  # server -> iteration -> begin of a row
        self.count = 0  # requests that are not answered

    def connected(self, servers: int) -> None:
        """Take requests to this number of servers, or to more than before."""
        self._open += [{} for _ in range(servers - len(self._open))]

    def sent(
        self, what: int, server: int, iteration: int, sent_bytes: int, began: int, *, pulls: bool
    ) -> None:
        """Note a request that has been given to the socket since `began`.

        pulls: an answer is due.
        """
        head = what, self._worker, server, NONE, iteration, sent_bytes
        begin = *head, NONE if pulls else 0, began, monotonic_ns()
        if pulls:
            self._open[server][iteration] = begin
            self.count += 1
        else:
            self._rows.add((*begin, *_AFTER_SENT, *_NO_ARRIVAL))

    def forget(self, server: int) -> None:
        """A server is gone, and does not answer its requests any more."""
        is_open = self._open[server]
        for begin in is_open.values():
            self._rows.add((*begin, *_AFTER_SENT, *_NO_ARRIVAL))
        self.count -= len(is_open)
        is_open.clear()

    def arrived(self, server: int, iteration: int, answer_bytes: int) -> None:
        """Note that the message that the clock has read last is an answer."""
        is_open = self._open[server]
        while is_open:
            first = next(iter(is_open))
            if first > iteration:
                return
            begin = is_open.pop(first)
            self.count -= 1
            if first == iteration:
                clock = self._clock
                stamps = clock.after_ns, clock.first_ns, clock.read_ns
                began, ended = begin[-2:]
                row = *begin[:_ANSWER_BYTES], answer_bytes, began, ended, *_AFTER_SENT, *stamps
                self._rows.add(row)
                return
            self._rows.add((*begin, *_AFTER_SENT, *_NO_ARRIVAL))

    def close(self) -> None:
        """Add the requests that were not answered."""
        for is_open in self._open:
            for begin in is_open.values():
                self._rows.add((*begin, *_AFTER_SENT, *_NO_ARRIVAL))
            is_open.clear()
        self.count = 0


class ServiceTimes:
    """The times of requests to a server, in the server's clock."""

    def __init__(self, rows: TimingRows, server: int) -> None:
        self._rows, self._clock, self._server = rows, rows.clock, server
        # Rows that begin, by worker and iteration: of requests with a pull, and of pushes without.
        self._open: dict[int, dict[int, list[int]]] = {}
        self._pushes: dict[tuple[int, int], list[int]] = {}
        self._last: dict[int, int] = {}  # worker -> iteration of its last push that was noted
        self.count = 0  # requests that are not answered
        self.reading = 0  # when the parameters were read last

    def received(
        self, what: int, worker: int, iteration: int, sent_bytes: int, *, pulls: bool
    ) -> None:
        """Note that the message that the clock has read last is a request.

        pulls: an answer is due.
        """
        clock = self._clock
        self.count += 1
        self._last[worker] = iteration
        head = what, worker, self._server, NONE, iteration, sent_bytes, NONE if pulls else 0
        stamps = clock.after_ns, clock.first_ns, clock.read_ns
        row = [*head, *_UNSENT, *stamps, *_UNHANDLED]
        if pulls:
            self._open.setdefault(worker, {})[iteration] = row
        else:
            self._pushes[worker, iteration] = row

    def knows(self, worker: int, iteration: int) -> bool:
        """True if the worker's last push that was noted is of this iteration."""
        return self._last.get(worker) == iteration

    def handled(self, message: Push | Pull, begun: int, done: int) -> None:
        """Note that the shard has handled a request."""
        worker, iteration = message.worker, message.iteration
        row = None
        if self._pushes and isinstance(message, Push):
            row = self._pushes.pop((worker, iteration), None)
        if row is not None:
            row[_BEGUN], row[_DONE] = begun, done
            self._rows.add(row)
            self.count -= 1
        elif (
            (is_open := self._open.get(worker))
            and (row := is_open.get(iteration))
            and row[_BEGUN] == NONE  # else the message is the pull of a push
        ):
            row[_BEGUN], row[_DONE] = begun, done

    def released(self, replies: list[Reply], now: int) -> None:
        """Note that the shard has returned these answers."""
        for reply in replies:
            is_open = self._open.get(reply.worker)
            if is_open and (row := is_open.get(reply.iteration)):
                row[_RELEASED] = now

    def forget(self, worker: int) -> None:
        """Requests of this worker are not answered any more: it asks other servers."""
        self._last.pop(worker, None)
        for row in self._open.pop(worker, {}).values():
            self._rows.add(row)
            self.count -= 1

    def probed(self, worker: int, number: int, size: int, began: int) -> None:
        """Add a probe that has just been answered; `began`: the answer began to be sent."""
        clock = self._clock
        read, ended = clock.read_ns, monotonic_ns()
        head = PROBE, worker, self._server, NONE, number, size, size, *_UNSENT
        service = (read,) * 4  # there is nothing to do
        stamps = clock.after_ns, clock.first_ns, read, *service, began, ended
        self._rows.add((*head, *stamps, *_NO_ARRIVAL))

    def answered(self, worker: int, iteration: int, answer_bytes: int, began: int) -> None:
        """Note an answer that has been given to the socket since `began`."""
        is_open = self._open.get(worker)
        while is_open:
            first = next(iter(is_open))
            if first > iteration:
                return
            row = is_open.pop(first)
            self.count -= 1
            if first == iteration:
                row[_ANSWER_BYTES] = answer_bytes
                row[_ANSWER] = self.reading, began, monotonic_ns()
                self._rows.add(row)
                return
            self._rows.add(row)

    def close(self) -> None:
        """Add the requests that were not answered."""
        for row in self._pushes.values():
            self._rows.add(row)
        for is_open in self._open.values():
            for row in is_open.values():
                self._rows.add(row)
        self._pushes.clear()
        self._open.clear()
        self.count = 0


class TimedShard(Shard):
    """A shard whose times are noted.

    It calls Shard's methods by name, which is faster than `super()`.
    """

    times: ServiceTimes

    def receive(self, message: Message, now: Time) -> list[Reply]:
        if not self.times.count:
            return Shard.receive(self, message, now)
        begun = monotonic_ns()
        replies = Shard.receive(self, message, now)
        done = monotonic_ns()
        if isinstance(message, _OF_SHARD):
            self.times.handled(message, begun, done)
        if replies:
            self.times.released(replies, done)
        return replies

    def on_time(self, now: Time) -> list[Reply]:
        replies = Shard.on_time(self, now)
        if self.times.count:
            self.times.released(replies, monotonic_ns())
        return replies

    def read(self) -> Value:
        if self.times.count:
            self.times.reading = monotonic_ns()
        return Shard.read(self)
