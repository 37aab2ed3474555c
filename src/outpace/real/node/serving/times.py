"""The times of requests to a server: the columns of their rows that the server knows.

A row begins when a request has been read, and is added when it has been answered; see `TimingRows`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from outpace.blocks.block import Block, Value
from outpace.real.node.timing import NO_ARRIVAL, PLACE, OpenRequests, TimingRows
from outpace.record.timing import PROBE, PULL, PUSH, WIDTH
from outpace.record.trace import NONE
from outpace.support.units import Time
from outpace.sync.messages import Message, Pull, Push, Reply, worker_name
from outpace.sync.shard import Shard

_ANSWER_BYTES: Final = PLACE["answer_bytes"]
_BEGUN, _DONE, _RELEASED = PLACE["begun_ns"], PLACE["done_ns"], PLACE["released_ns"]
_ANSWER: Final = slice(PLACE["answer_begun_ns"], PLACE["answered_end_ns"] + 1)
_UNSENT: Final = (NONE, NONE)
_UNHANDLED: Final = (NONE,) * (WIDTH - _BEGUN)
_OF_SHARD: Final = Push | Pull


class ServiceTimes:
    """The times of requests to a server, in the server's clock."""

    def __init__(self, rows: TimingRows, server: int) -> None:
        self._rows, self.clock, self._server = rows, rows.clock, server
        self.open = OpenRequests(rows)  # those with a pull
        self.pushes: dict[tuple[int, int], list[int]] = {}  # rows of those without, not applied
        self._last: dict[int, int] = {}  # worker -> iteration of its last push that was noted
        self.reading = 0  # when the parameters were read last

    def received(self, peer: str, request: Push | Pull, block: Block | None) -> None:
        """Note that the message that the clock has read last is a request of this peer.

        A pull that comes alone is noted if the push of its iteration was.
        """
        worker, iteration = request.worker, request.iteration
        if peer != worker_name(worker):
            return
        if isinstance(request, Pull):
            if self._last.get(worker) == iteration:
                self._begin(PULL, worker, iteration, 0, pulls=True)
        else:
            size, pulls = 0 if block is None else block.nbytes, request.coin is not None
            self._begin(PUSH, worker, iteration, size, pulls=pulls)

    def _begin(
        self, what: int, worker: int, iteration: int, sent_bytes: int, *, pulls: bool
    ) -> None:
        """Begin the row of a request. pulls: an answer is due."""
        clock = self.clock
        self._last[worker] = iteration
        head = what, worker, self._server, NONE, iteration, sent_bytes, NONE if pulls else 0
        stamps = clock.after_ns, clock.first_ns, clock.read_ns
        row = [*head, *_UNSENT, *stamps, *_UNHANDLED]
        if pulls:
            self.open.begin(worker, iteration, row)
        else:
            self.pushes[worker, iteration] = row

    def handled(self, message: Push | Pull, begun: int, done: int) -> None:
        """Note that the shard has handled a request."""
        worker, iteration = message.worker, message.iteration
        row = None
        if self.pushes and isinstance(message, Push):
            row = self.pushes.pop((worker, iteration), None)
        if row is not None:
            row[_BEGUN], row[_DONE] = begun, done
            self._rows.add(row)
        elif (row := self.open.get(worker, iteration)) and row[_BEGUN] == NONE:
            # Else the message is the pull of a push.
            row[_BEGUN], row[_DONE] = begun, done

    def released(self, replies: list[Reply], now: int) -> None:
        """Note that the shard has returned these answers."""
        for reply in replies:
            if row := self.open.get(reply.worker, reply.iteration):
                row[_RELEASED] = now

    def probed(self, worker: int, number: int, size: int, began: int) -> None:
        """Add a probe that has just been answered; `began`: the answer began to be sent."""
        clock = self.clock
        read, ended = clock.read_ns, monotonic_ns()
        head = PROBE, worker, self._server, NONE, number, size, size, *_UNSENT
        service = (read,) * 4  # there is nothing to do
        stamps = clock.after_ns, clock.first_ns, read, *service, began, ended
        self._rows.add((*head, *stamps, *NO_ARRIVAL))

    def answered(self, worker: int, iteration: int, answer_bytes: int, began: int) -> None:
        """Note an answer that has been given to the socket since `began`."""
        if (row := self.open.answered(worker, iteration)) is not None:
            row[_ANSWER_BYTES] = answer_bytes
            row[_ANSWER] = self.reading, began, monotonic_ns()
            self._rows.add(row)

    def close(self) -> None:
        """Add the requests that were not answered."""
        for row in self.pushes.values():
            self._rows.add(row)
        self.pushes.clear()
        self.open.close()


class TimedShard(Shard):
    """A shard whose times are noted.

    It calls Shard's methods by name, which is faster than `super()`.

    Attributes:
        members_changed: called when a worker may have left or come.
    """

    times: ServiceTimes
    members_changed: Callable[[], None]

    def receive(self, message: Message, now: Time) -> list[Reply]:
        times = self.times
        is_timed, begun = times.open.count or times.pushes, monotonic_ns()
        replies = Shard.receive(self, message, now)
        done = monotonic_ns()
        if not isinstance(message, _OF_SHARD):
            self.members_changed()
        elif is_timed:
            times.handled(message, begun, done)
        if replies and is_timed:
            times.released(replies, done)
        return replies

    def on_time(self, now: Time) -> list[Reply]:
        replies = Shard.on_time(self, now)
        self.times.released(replies, monotonic_ns())
        return replies

    def read(self) -> Value:
        self.times.reading = monotonic_ns()
        return Shard.read(self)
