"""A worker's part in all-reduces over torch.distributed.

A worker sends a copy of its value, followed by data about it (`Entry`). So if a worker is lost
during an all-reduce, the others still have their values, and repeat the all-reduce without it. If
one of them already has the result, it sends the result to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

import torch

from outpace.blocks.block import Block, Phantom, Value
from outpace.engine.peers import PendingReduction
from outpace.kernel import Future, Kernel
from outpace.real.collective.buffers import (
    AccumulatedInBuffer,
    Contribution,
    Digests,
    Entry,
    WireBuffer,
    WireSum,
)
from outpace.real.collective.communication_thread import CommunicationThread
from outpace.real.collective.group import Group, GroupSettings
from outpace.real.net.clock import RealClock
from outpace.real.net.peer_messages import GroupBroken, TakePart
from outpace.real.net.waker import Waker
from outpace.support.units import Time
from outpace.sync.messages import WireMessage
from outpace.sync.peers.context import Reduced
from outpace.sync.peers.parameters import AccumulatedInPlace

_T = TypeVar("_T")

NOT_COMPARED: Final = Digests()


class Reductions:
    """The all-reduces of worker `me`, one at a time. Use it only in the training thread.

    Args:
        like: an empty tensor with the values' dtype and device; None: values are phantoms, which
            are sent as bytes.
        elements: number of elements of a value.
        exact: number of elements at the end that need not be finite.
        tail: dtype in which these elements are sent; None: the dtype of `like`.
        wire: dtype in which the other elements are sent.
        averages: True: the program uses only means of gradients in pieces, and may change them in
            place.
        tell: sends a message to the coordinator.
        ended: called with each finished all-reduce.
        least: returns the minimum duration of an all-reduce of these members, in ns.

    Attributes:
        done: number of all-reduces whose result has arrived, since the run began.
    """

    def __init__(
        self,
        kernel: Kernel,
        clock: RealClock,
        me: int,
        workers: int,
        *,
        like: torch.Tensor | None,
        elements: int,
        exact: int,
        wire: torch.dtype,
        tail: torch.dtype | None = None,
        averages: bool = False,
        tell: Callable[[WireMessage], None],
        ended: Callable[[RealReduction], None],
        least: Callable[[Sequence[int]], Time],
    ) -> None:
        self._kernel, self._clock, self._waker = kernel, clock, Waker(clock)
        self._me, self._workers = me, workers
        self._elements, self._exact = elements, exact
        self._dtype = wire if like is None else like.dtype
        self._device = None if like is None else like.device  # None: values are phantoms
        self._wire, self._tail = wire, tail or self._dtype
        self._share = 1 / workers if averages and self._dtype == wire else 1.0
        self._tell, self._on_ended, self._least = tell, ended, least
        # the last thread belongs to the present group
        self._threads: list[CommunicationThread] = []
        # buffers of the last finished all-reduce and of the next one
        self._wires: list[WireBuffer] = []
        self.done = 0
        self._pending: RealReduction | None = None

    def connect(
        self, settings: GroupSettings, generation: int, members: Sequence[int]
    ) -> Future[None]:
        """Make a new group of these members, and repeat the pending all-reduce in it.

        Returns:
            A future that is set once all members have joined the group.
        """
        self.leave()
        make_group = partial(Group, settings, generation, list(members), self._me)
        broken = partial(self._broken, generation)
        self._threads.append(CommunicationThread(self._waker, make_group, broken))
        part = self._pending
        if part is not None:  # an operation of the old group may still write into its buffer
            part.wire = self._wires[part.number % 2] = self._new_wire()
        met = Future[None](self._kernel, "the other workers")
        wires = list(self._wires)
        self._connected.do(partial(self._even_out, self.done, wires, members), met.set)
        if part is not None:
            self._add_up(part)
        return met

    def new_sum(self) -> AccumulatedInPlace | AccumulatedInBuffer:
        """Return an empty sum of gradients, which an all-reduce uses without a copy."""
        if self._device is None:
            return AccumulatedInPlace()
        sizes = [(self._elements - self._exact, self._dtype), (self._exact, self._tail)]
        return AccumulatedInBuffer(sizes, self._device)

    def share(self, values: torch.Tensor) -> Future[None]:
        """Replace `values` by worker 0's values; the future is set when they arrive."""

        def take(group: Group) -> None:
            buffer = self._new(len(values), values.dtype)
            buffer.copy_(values)
            group.broadcast(buffer, 0)
            values.copy_(buffer)

        return self.do(take, "the initial parameters")

    def do(self, job: Callable[[Group], _T], what: str) -> Future[_T]:
        """Run a job in the communication thread; all workers run the same job.

        Returns:
            A future that is set to the result of the job.
        """
        found = Future[_T](self._kernel, what)
        self._connected.do(job, found.set)
        return found

    def begin(
        self,
        value: Block | None,
        weight: int,
        versions: Sequence[int] = (),
        digests: Digests = NOT_COMPARED,
    ) -> RealReduction:
        """Join the next all-reduce; see `PeerContext.begin_all_reduce`.

        Args:
            versions: versions of the common model at which the gradients in the value were
                computed.
            digests: digests of this worker.
        """
        assert self._pending is None, "the last one is not over"
        if not self._wires:
            self._wires = [self._new_wire(), self._new_wire()]
        number = self.done
        now, arrived = (
            self._clock.now,
            Future[None](self._kernel, f"the result of all-reduce {number}"),
        )
        part = self._pending = RealReduction(
            now, arrived, number, value, weight, versions, digests, self._wires[number % 2]
        )
        self._tell(TakePart("all-reduce", number))
        self._add_up(part)
        return part

    def _add_up(self, part: RealReduction) -> None:
        """Sum the values of all workers, in the communication thread."""
        self._connected.do(partial(self._reduce, part, part.wire), partial(self._finish, part))

    def _new_wire(self) -> WireBuffer:
        first = self._elements - self._exact
        sizes = [(first, self._wire), (self._exact, self._tail)]
        if self._wire == self._tail:
            sizes = [(self._elements, self._wire)]
        return WireBuffer([self._new(*size) for size in sizes], self._workers)

    def _new(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialized buffer on the device of the values."""
        return torch.empty(elements, dtype=dtype, device=self._device)

    def leave(self) -> None:
        """Do not join any more all-reduces."""
        for thread in self._threads[-1:]:
            thread.abandon()

    def join(self, limit_s: float) -> None:
        """Wait, after `leave`, until the threads of this and all earlier groups have ended."""
        for thread in self._threads:
            thread.join(limit_s)

    @property
    def _connected(self) -> CommunicationThread:
        assert self._threads, "not connected"
        return self._threads[-1]

    def _broken(self, generation: int, reason: str) -> None:
        self._tell(GroupBroken(generation, reason[:1000]))

    # -- in the communication thread --------------------------------------------------

    # Buffers are passed as arguments: an abandoned thread must not touch its successor's buffers.

    def _even_out(
        self, done: int, wires: Sequence[WireBuffer], members: Sequence[int], group: Group
    ) -> None:
        """Send the latest result to the members that do not have it yet.

        done: number of results that this worker has.
        """
        counts = self._new(self._workers, torch.int64).zero_()
        counts[self._me] = done
        group.all_reduce([counts])
        known = {member: int(counts[member]) for member in members}
        most, least = max(known.values()), min(known.values())
        source = next(member for member, results in known.items() if results == most)
        if least < most - 1:
            raise RuntimeError(f"workers have come to all-reduces {least} and {most}")
        if least < most:
            wire = wires[(most - 1) % 2]
            if done == most and not wire.is_intact:
                raise RuntimeError(f"the result of all-reduce {most - 1} was written over")
            for buffer in wire.buffers:
                group.broadcast(buffer, source)
            wire.is_summed = done < most

    def _reduce(self, part: RealReduction, wire: WireBuffer, group: Group) -> _Result:
        begun = self._clock.now
        while not wire.is_summed:
            group.all_reduce(self._written(part, wire))
            # A worker whose value is not finite contributes nothing in the next attempt.
            table = wire.entries()
            wire.is_summed = all(entry.part is not Contribution.SPOILED for entry in table.values())
        wire.is_summed = False  # for the next use of the buffer
        total: Value | None = None
        if self._device is None:
            total = Phantom(self._elements)
        elif self._share == 1 and not part.awaited:
            total = wire.total(self._dtype)  # copy the sum before the training waits for it
        return _Result(wire.entries(), total, (begun, self._clock.now))

    def _written(self, part: RealReduction, wire: WireBuffer) -> Iterator[torch.Tensor]:
        """Write this worker's value and entry; yield each piece once it is written."""
        gives = part.value is not None and part.is_finite
        kind = Contribution.VALUE if gives else Contribution.NOTHING
        yield from wire.write(part.value if gives else None, self._share, self._exact)
        if not wire.is_finite:
            part.is_finite, kind = False, Contribution.SPOILED
        yield wire.write_entry(self._me, Entry(kind, part.weight, part.joined, part.digests))

    # -- in the training thread again ---------------------------------------------------

    def _finish(self, part: RealReduction, result: _Result) -> None:
        table, part.span = result.entries, result.span
        part.wire.seal()
        self.done += 1
        self._pending = None  # the all-reduce is not repeated if a worker is lost from now on
        part.members = sorted(table)
        part.compared = {worker: entry.digests for worker, entry in table.items()}
        part.began = max(entry.joined for entry in table.values())
        weights = [entry.weight for entry in table.values() if entry.part is Contribution.VALUE]
        values = WireSum(
            part.wire, part.value, result.total, self._dtype, len(weights), self._share
        )
        part.reduced = Reduced(values, sum(weights))
        ended = max(part.span[1], part.began + self._least(part.members))
        if ended > self._clock.now:
            self._kernel.call_at(ended, lambda _: self._end(part, ended))
        else:
            self._end(part, ended)

    def _end(self, part: RealReduction, ended: Time) -> None:
        part.ended = ended
        self._on_ended(part)
        part.value = None
        part.end(ended)


class _Result(NamedTuple):
    """The result of an all-reduce, from the communication thread.

    Attributes:
        total: a copy of the sum, if one was made.
        span: times between which the thread worked on it.
    """

    entries: dict[int, Entry]
    total: Value | None
    span: tuple[Time, Time]


@dataclass(eq=False)
class RealReduction(PendingReduction):
    """This worker's part in an all-reduce. Implements `Reduction`."""

    versions: Sequence[int]
    digests: Digests
    wire: WireBuffer
    is_finite: bool = True  # False: the value is left out of the sum
    awaited: bool = False  # True once the training waits for the result
    # times between which the communication thread worked on it
    span: tuple[Time, Time] = field(init=False)
    compared: dict[int, Digests] = field(init=False)  # entries of the members
    reduced: Reduced = field(init=False)

    @property
    def done(self) -> bool:
        return self.arrived.done

    @property
    def bytes_sent(self) -> int:
        """Bytes that this worker sends in a ring all-reduce."""
        return 2 * (len(self.members) - 1) * self.nbytes // len(self.members)

    @property
    def nbytes(self) -> int:
        """Bytes of the value on the wire."""
        return sum(buffer.nbytes for buffer in self.wire.buffers)

    async def result(self) -> Reduced:
        self.awaited = True
        await self.arrived
        return self.reduced
