"""A worker's part in all-reduces over torch.distributed.

What goes over the wire is a copy of the values, with an entry of each worker behind them
(`entries`): so who loses the others in the middle of one still has what it gave, and begins it
anew with those who remain. If one of these has the result already, the others take it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from outpace.blocks import BlockSum
from outpace.kernel import Future, Kernel
from outpace.messages import Block, Phantom, Value, parts
from outpace.programs.peers import Reduced
from outpace.real.bell import Bell
from outpace.real.bodies import Body, Broken, Joins
from outpace.real.clock import RealClock
from outpace.real.entries import DIGITS, Entry, digits_of, entries_in
from outpace.real.group import Group, Meeting
from outpace.real.line import Done, Line
from outpace.units import Time


class Reductions:
    """Belongs to the thread of the training. me: of so many workers.

    like: an empty tensor of the values' dtype, where they are; None: they are phantoms, which
    travel as bytes. elements: how many. wire: the dtype in which they travel, but for so many at
    the end that are `exact`. tell: the coordinator. ended: told of each that is over. least: how
    long one of these members shall take at least (ns).
    """

    def __init__(
        self, kernel: Kernel, clock: RealClock, me: int, workers: int, *, like: torch.Tensor | None,
        elements: int, exact: int, wire: torch.dtype, tell: Callable[[Body], None],
        ended: Callable[[Part], None], least: Callable[[Sequence[int]], Time],
    ) -> None:  # fmt: skip
        self._kernel, self._clock, self._bell = kernel, clock, Bell(clock)
        self._me, self._workers = me, workers
        self._like, self._elements, self._exact = like, elements, exact
        self._new = partial((torch.empty(0) if like is None else like).new_empty, dtype=wire)
        self._rounds = like is not None and like.dtype != wire
        self._tell, self._told_of, self._least = tell, ended, least
        self._line: Line | None = None
        self._wires: list[Wire] = []  # of the last that is over, and of the next
        self._done = 0  # those whose result is here
        self._pending: Part | None = None

    def connect(self, meeting: Meeting, generation: int, members: Sequence[int]) -> Future[None]:
        """From now on with these. What was begun before and is not over is begun anew.

        Done once they have met.
        """
        if self._line is not None:
            self._line.abandon()
        make_group = partial(Group, meeting, generation, list(members), self._me)
        self._line = Line(self._bell, make_group, partial(self._broken, generation))
        part = self._pending
        if part is not None:  # an operation of the old group may still write into its buffer
            part.wire = self._wires[part.number % 2] = self._new_wire()
        met = Future[None](self._kernel, "the other workers")
        self._line.do(partial(self._even_out, self._done, list(self._wires), members, met))
        if part is not None:
            self._line.do(partial(self._reduce, part, part.wire))
        return met

    def share(self, values: torch.Tensor, source: int = 0) -> Future[None]:
        """Have all take that worker's values instead of theirs; done when they are here."""
        shared = Future[None](self._kernel, "the initial parameters")

        def take(group: Group) -> Done:
            group.broadcast(values, source)
            return partial(shared.set, None)

        self._now_line.do(take)
        return shared

    def begin(self, value: Block | None, weight: int) -> Part:
        """Take part in the next; see `PeerContext.begin_all_reduce`."""
        assert self._pending is None, "the last one is not over"
        if not self._wires:
            self._wires = [self._new_wire(), self._new_wire()]
        number = self._done
        part = self._pending = Part(
            self._kernel, self._me, number, value, weight, self._wires[number % 2], self._clock.now
        )
        self._tell(Joins(number))
        self._now_line.do(partial(self._reduce, part, part.wire))
        return part

    def _new_wire(self) -> Wire:
        entries = self._workers * DIGITS
        if not self._rounds or self._like is None:
            return Wire([self._new(self._elements + entries)], self._elements)
        rounded, exact = self._elements - self._exact, self._exact
        last = self._like.new_empty(exact + entries)
        return Wire([self._new(rounded), last] if rounded else [last], self._elements)

    def leave(self) -> None:
        """It takes part no more."""
        if self._line is not None:
            self._line.abandon()

    @property
    def _now_line(self) -> Line:
        assert self._line is not None, "not connected"
        return self._line

    def _broken(self, generation: int, reason: str) -> None:
        self._tell(Broken(generation, reason[:1000]))

    # -- in the thread of the line ---------------------------------------------------

    # What it works on it is given: an abandoned one shall not touch the buffers of its successor.

    def _even_out(
        self, done: int, wires: Sequence[Wire], members: Sequence[int], met: Future[None],
        group: Group,
    ) -> Done:  # fmt: skip
        """Who has the result of one that others have not gives it to them."""
        counts = self._new(self._workers, dtype=torch.int64).zero_()
        counts[self._me] = done
        group.all_reduce(counts)
        known = [int(counts[member]) for member in members]
        most = max(known)
        if min(known) < most - 1:
            raise RuntimeError(f"workers have come to all-reduces {min(known)} and {most}")
        if min(known) < most:
            wire = wires[(most - 1) % 2]
            for buffer in wire.buffers:
                group.broadcast(buffer, members[known.index(most)])
            wire.is_summed = done < most
        return partial(met.set, None)

    def _reduce(self, part: Part, wire: Wire, group: Group) -> Done:
        numbers = wire.numbers.view(self._workers, DIGITS)
        if not wire.is_summed:
            wire.write(part.value)
            row = digits_of(Entry(part.gives, part.weight, part.joined))
            numbers.zero_()
            numbers[self._me] = numbers.new_tensor(row)
            for buffer in wire.buffers:
                group.all_reduce(buffer)
        wire.is_summed = False  # when it is used again
        rows: list[list[float]] = numbers.tolist()
        return partial(self._finish, part, entries_in(rows), self._clock.now)

    # -- and back --------------------------------------------------------------------

    def _finish(self, part: Part, table: dict[int, Entry], ended: Time) -> None:
        self._done += 1
        self._pending = None  # whoever is lost from now on, this one need not begin anew
        began = max(entry.joined for entry in table.values())
        part.ended = max(ended, began + self._least(list(table)))
        if part.ended > self._clock.now:
            self._kernel.call_at(part.ended, lambda _: self._end(part, table, began))
        else:
            self._end(part, table, began)

    def _end(self, part: Part, table: dict[int, Entry], began: Time) -> None:
        part.began, part.members = began, sorted(table)
        count = sum(entry.gives for entry in table.values())
        values: BlockSum
        if self._like is None:
            values = _PhantomSum(self._elements, count)
        else:
            values = _WireSum(part.wire, self._like.dtype, count)
        reduced = Reduced(values, sum(entry.weight for entry in table.values() if entry.gives))
        part.value = None
        self._told_of(part)
        part.arrived.set(reduced)


class Part:
    """This worker's part in one of them. Implements `Reduction`."""

    def __init__(
        self, kernel: Kernel, worker: int, number: int, value: Block | None, weight: int,
        wire: Wire, joined: Time,
    ) -> None:  # fmt: skip
        self.worker, self.number, self.value, self.weight = worker, number, value, weight
        self.wire, self.joined = wire, joined
        self.gives = value is not None
        self.began: Time
        self.ended: Time
        self.members: list[int]
        self.arrived = Future[Reduced](kernel, f"the result of all-reduce {number}")

    @property
    def done(self) -> bool:
        return self.arrived.done

    @property
    def bytes_sent(self) -> int:
        """By this worker, in a ring."""
        size = sum(buffer.nbytes for buffer in self.wire.buffers)
        return 2 * (len(self.members) - 1) * size // len(self.members)

    async def result(self) -> Reduced:
        return await self.arrived


class Gathered:
    """A sum of gradients in a buffer of its own; two take turns. Implements the Protocol."""

    def __init__(self, like: torch.Tensor, elements: int) -> None:
        self._new = partial(like.new_empty, elements)
        self._buffers: list[torch.Tensor] = []
        self.count = 0

    def add(self, gradient: Block) -> None:
        if not self._buffers:
            self._buffers = [self._new(), self._new()]
        places = split_like(self._buffers[0], parts(gradient))
        if self.count:
            torch._foreach_add_(places, list(parts(gradient)))
        else:
            torch._foreach_copy_(places, list(parts(gradient)))
        self.count += 1

    def take(self) -> tuple[Block, int]:
        full, other = self._buffers
        self._buffers = [other, full]  # which is given back when the next is taken
        count, self.count = self.count, 0
        return full, count


class _PhantomSum:
    def __init__(self, nbytes: int, count: int) -> None:
        self._block, self.count = Phantom(nbytes), count

    def add(self, worker: int, gradient: Value) -> None:
        raise AssertionError("it is complete")

    def total(self) -> Value:
        return self._block

    def mean(self) -> Value:
        return self._block


class Wire:
    """What travels: the values, perhaps of two dtypes, and the entries behind them."""

    def __init__(self, buffers: Sequence[torch.Tensor], elements: int) -> None:
        self.buffers = buffers
        self.is_summed = False  # does it hold the sum already, rather than this worker's part?
        rest = elements
        self.values = []  # views
        for buffer in buffers:
            self.values.append(buffer[:rest])
            rest -= len(self.values[-1])
        self.numbers = buffers[-1][len(self.values[-1]) :]

    def write(self, value: Block | None) -> None:
        """None: zeros."""
        if value is None or isinstance(value, Phantom):
            for into in self.values:
                into.zero_()
            return
        tensors = list(parts(value))
        if len(self.values) == 1:
            torch._foreach_copy_(split_like(self.values[0], tensors), tensors)
        elif len(tensors) == 1:
            torch._foreach_copy_(self.values, torch.split(tensors[0], list(map(len, self.values))))
        else:  # what is exact is the last of them
            first, last = self.values
            torch._foreach_copy_(split_like(first, tensors[:-1]), tensors[:-1])
            last.copy_(tensors[-1])


class _WireSum:
    """Leaves the buffers as they are: somebody may need them yet. Implements `BlockSum`."""

    def __init__(self, wire: Wire, dtype: torch.dtype, count: int) -> None:
        self._wire, self._dtype, self.count = wire, dtype, count

    def add(self, worker: int, gradient: Value) -> None:
        raise AssertionError("it is complete")

    def total(self) -> Value:
        if len(self._wire.values) == 1:
            return self._wire.values[0].to(self._dtype, copy=True)
        return torch.cat([values.to(self._dtype) for values in self._wire.values])

    def mean(self) -> Value:
        (first, *others) = self._wire.values
        if self.count > 1 and not others and first.dtype == self._dtype:
            return torch.div(first, self.count)
        total = self.total()
        assert isinstance(total, torch.Tensor)
        return total.div_(self.count)


def split_like(block: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Consecutive parts of it as long as these are: views of the same shapes."""
    flat = torch.split(block, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(flat, tensors, strict=True)]
