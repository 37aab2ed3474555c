"""The times of requests to a server: the columns of their rows that the server knows.

A row begins when a request has been read, and is added when the request has been answered; see
`TimingRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, Final

from outpace.blocks.block import Value
from outpace.real.node.timing import NO_ARRIVAL, PLACE, OpenRequests, TimingRows
from outpace.record.tables import NONE
from outpace.record.timing import PROBE, PULL, PUSH, WIDTH
from outpace.support.units import Time
from outpace.sync.messages import Message, Pull, Push, Reply, worker_name
from outpace.sync.shard import Shard

_ANSWER_BYTES: Final = PLACE["answer_bytes"]
_BEGUN, _DONE, _RELEASED = PLACE["begun_ns"], PLACE["done_ns"], PLACE["released_ns"]
_ANSWER: Final = slice(PLACE["answer_begun_ns"], PLACE["answered_end_ns"] + 1)
_UNSENT: Final = (NONE, NONE)
_UNHANDLED: Final = (NONE,) * (WIDTH - _BEGUN)
_OF_SHARD: Final = Push | Pull


class ServiceTimes(OpenRequests):
    """The times of requests to a server, by the server's clock."""

    def __init__(self, rows: TimingRows, server: int) -> None:
        super().__init__(rows)
        self._server = server
        # pushes without a pull that are not applied yet
        self.pushes: dict[tuple[int, int], list[int]] = {}
        self._last: dict[int, int] = {}  # worker -> iteration of its last push that was noted
        self.reading = 0  # time when the parameters were last read

    def received(self, peer: str, request: Push | Pull) -> None:
        """Note that the message that the clock has read last is a request of this peer.

        A pull without a push is noted if the push of its iteration was noted.
        """
        worker, iteration = request.worker, request.iteration
        if peer != worker_name(worker):
            return
        what, size, pulls = PULL, 0, True
        if isinstance(request, Push):
            what, size = PUSH, request.nbytes
            pulls = request.coin is not None
            self._last[worker] = iteration
        elif self._last.get(worker) != iteration:
            return
        clock = self.clock
        head = what, worker, self._server, NONE, iteration, size, NONE if pulls else 0
        stamps = clock.after_ns, clock.first_ns, clock.read_ns
        rows = self.open if pulls else self.pushes
        rows[worker, iteration] = [*head, *_UNSENT, *stamps, *_UNHANDLED]

    def handled(
        self, message: Message | None, replies: Sequence[Reply], begun: int, done: int
    ) -> None:
        """Note that the shard has handled a message, or the time, and returned these answers."""
        if isinstance(message, _OF_SHARD):
            key = message.worker, message.iteration
            row = self.pushes.pop(key, None) if isinstance(message, Push) else None
            if row is not None:
                row[_BEGUN], row[_DONE] = begun, done
                self._rows.add(row)
            elif (row := self.open.get(key)) and row[_BEGUN] == NONE:
                # Otherwise the message is the pull of a push.
                row[_BEGUN], row[_DONE] = begun, done
        for reply in replies:
            if row := self.open.get((reply.worker, reply.iteration)):
                row[_RELEASED] = done

    def probed(self, worker: int, number: int, size: int, began: int) -> None:
        """Add a probe that has just been answered. began: when the answer began to be sent."""
        clock = self.clock
        read, ended = clock.read_ns, monotonic_ns()
        head = PROBE, worker, self._server, NONE, number, size, size, *_UNSENT
        service = (read,) * 4  # there is nothing to do
        stamps = clock.after_ns, clock.first_ns, read, *service, began, ended
        self._rows.add((*head, *stamps, *NO_ARRIVAL))

    def answered(self, worker: int, iteration: int, answer_bytes: int, began: int) -> None:
        """Note an answer that has been given to the socket since `began`."""
        if (row := self._answered(worker, iteration)) is not None:
            row[_ANSWER_BYTES] = answer_bytes
            row[_ANSWER] = self.reading, began, monotonic_ns()
            self._rows.add(row)

    def close(self) -> None:
        """Add the requests that were not answered."""
        for row in self.pushes.values():
            self._rows.add(row)
        self.pushes.clear()
        super().close()


class TimedShard(Shard):
    """A shard that records its times.

    It calls Shard's methods by name, which is faster than `super()`.

    Args:
        of_shard: arguments of `Shard`.
        members_changed: called when a worker may have left or joined.
    """

    def __init__(
        self, *of_shard: Any, times: ServiceTimes, members_changed: Callable[[], None]
    ) -> None:
        super().__init__(*of_shard)
        self._times, self._members_changed = times, members_changed

    def receive(self, message: Message, now: Time) -> list[Reply]:
        times = self._times
        is_timed, begun = times.open or times.pushes, monotonic_ns()
        replies = Shard.receive(self, message, now)
        done = monotonic_ns()
        if not isinstance(message, _OF_SHARD):
            self._members_changed()
        if is_timed:
            times.handled(message, replies, begun, done)
        return replies

    def on_time(self, now: Time) -> list[Reply]:
        replies, done = Shard.on_time(self, now), monotonic_ns()
        self._times.handled(None, replies, done, done)
        return replies

    def read(self) -> Value:
        self._times.reading = monotonic_ns()
        return Shard.read(self)
