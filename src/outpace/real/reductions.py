"""A worker's part in all-reduces over torch.distributed.

What goes over the wire is a copy of the values, with an entry of each worker behind them
(`entries`): so who loses the others in the middle of one still has what it gave, and begins it
anew with those who remain. If one of these has the result already, the others take it from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import torch

from outpace.aggregate import all_finite
from outpace.blocks import BlockSum
from outpace.kernel import Future, Kernel
from outpace.messages import Block, Phantom, Value, parts
from outpace.pieces import Pieces
from outpace.programs.peers import Reduced
from outpace.real.bell import Bell
from outpace.real.beside import GroupBeside, SharedMemory
from outpace.real.bodies import Body, Broken, Joins
from outpace.real.clock import RealClock
from outpace.real.entries import DIGITS, Entry, digits_of, entries_in
from outpace.real.entries import Part as InIt
from outpace.real.group import Group, Meeting
from outpace.real.line import Done, Line, Synchronizing
from outpace.units import Time

_AT_ONCE: Final = 1 << 21  # elements that are written before they are sent


class Reductions:
    """Belongs to the thread of the training. me: of so many workers.

    like: an empty tensor of the values' dtype, where they are; None: they are phantoms, which
    travel as bytes. elements: how many. wire: the dtype in which they travel, but for so many at
    the end that are `exact`. averages: only means are asked for, of gradients in pieces, which
    need not stay as they are. beside: in a process rather than in a thread. tell: the
    coordinator. ended: told of each that is over. least: how long one of these members shall take
    at least (ns).
    """

    def __init__(
        self, kernel: Kernel, clock: RealClock, me: int, workers: int, *, like: torch.Tensor | None,
        elements: int, exact: int, wire: torch.dtype, averages: bool = False, beside: bool = False,
        tell: Callable[[Body], None], ended: Callable[[Part], None],
        least: Callable[[Sequence[int]], Time],
    ) -> None:  # fmt: skip
        self._kernel, self._clock, self._bell = kernel, clock, Bell(clock)
        self._me, self._workers = me, workers
        self._like, self._elements, self._exact = like, elements, exact
        self._wire = wire
        self._memory = SharedMemory() if beside else None
        self._rounds = like is not None and like.dtype != wire
        self._share = 1 / workers if averages and not self._rounds else 1.0
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
        kind: Callable[..., Synchronizing] = Group
        if self._memory is not None:
            kind = partial(GroupBeside, self._memory)
        make_group = partial(kind, meeting, generation, list(members), self._me)
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

        def take(group: Synchronizing) -> Done:
            buffer = self._new(len(values), values.dtype)
            buffer.copy_(values)
            group.broadcast(buffer, source)
            values.copy_(buffer)
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
            return Wire([self._new(self._elements + entries, self._wire)], self._elements)
        rounded, exact = self._elements - self._exact, self._exact
        last = self._new(exact + entries, self._like.dtype)
        return Wire([self._new(rounded, self._wire), last] if rounded else [last], self._elements)

    def _new(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """An empty buffer that the group can get at."""
        if self._memory is not None:
            return self._memory.empty(elements, dtype)
        return torch.empty(
            elements, dtype=dtype, device=None if self._like is None else self._like.device
        )

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
        group: Synchronizing,
    ) -> Done:  # fmt: skip
        """Who has the result of one that others have not gives it to them."""
        counts = self._new(self._workers, torch.int64).zero_()
        counts[self._me] = done
        group.all_reduce([counts])
        known = [int(counts[member]) for member in members]
        most = max(known)
        if min(known) < most - 1:
            raise RuntimeError(f"workers have come to all-reduces {min(known)} and {most}")
        if min(known) < most:
            wire = wires[(most - 1) % 2]
            if done == most and not wire.is_intact:
                raise RuntimeError(f"the result of all-reduce {most - 1} was written over")
            for buffer in wire.buffers:
                group.broadcast(buffer, members[known.index(most)])
            wire.is_summed = done < most
        return partial(met.set, None)

    def _reduce(self, part: Part, wire: Wire, group: Synchronizing) -> Done:
        table: dict[int, Entry] = {}
        while not wire.is_summed:
            group.all_reduce(self._written(part, wire))
            table = self._table_in(wire)
            # Who has spoilt it has nothing in it the next time.
            wire.is_summed = all(entry.part is not InIt.SPOILED for entry in table.values())
        wire.is_summed = False  # when it is used again
        total = None
        if not part.awaited and self._like is not None:  # there is time to copy it
            total = wire.total(self._like.dtype)
        return partial(self._finish, part, table or self._table_in(wire), total, self._clock.now)

    def _table_in(self, wire: Wire) -> dict[int, Entry]:
        rows: list[list[float]] = wire.numbers.view(self._workers, DIGITS).tolist()
        return entries_in(rows)

    def _written(self, part: Part, wire: Wire) -> Iterator[torch.Tensor]:
        """What it has in it, piece by piece, and then its entry."""
        kind = InIt.VALUE
        if part.value is None or not part.is_finite:
            yield from wire.clear()
            kind = InIt.NOTHING
        else:
            yield from wire.write(part.value, self._share)
            part.is_finite = wire.is_finite
            if not part.is_finite:
                kind = InIt.SPOILED
        numbers = wire.numbers.view(self._workers, DIGITS).zero_()
        numbers[self._me] = numbers.new_tensor(digits_of(Entry(kind, part.weight, part.joined)))
        yield wire.last

    # -- and back --------------------------------------------------------------------

    def _finish(
        self, part: Part, table: dict[int, Entry], total: torch.Tensor | None, ended: Time
    ) -> None:
        part.wire.is_intact = True
        self._done += 1
        self._pending = None  # whoever is lost from now on, this one need not begin anew
        began = max(entry.joined for entry in table.values())
        part.ended = max(ended, began + self._least(list(table)))
        if part.ended > self._clock.now:
            self._kernel.call_at(part.ended, lambda _: self._end(part, table, total, began))
        else:
            self._end(part, table, total, began)

    def _end(
        self, part: Part, table: dict[int, Entry], total: torch.Tensor | None, began: Time
    ) -> None:
        part.began, part.members = began, sorted(table)
        given = [entry.weight for entry in table.values() if entry.part is InIt.VALUE]
        values: BlockSum
        if self._like is None:
            values = _PhantomSum(self._elements, len(given))
        else:
            values = _WireSum(part, total, self._like.dtype, len(given), self._share)
        reduced = Reduced(values, sum(given))
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
        self.is_finite = True  # the value; else it was not given
        self.awaited = False  # is the training waiting for it?
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
        self.awaited = True
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
        self._pieces = [piece for each in self.values for piece in torch.split(each, _AT_ONCE)]
        # The last is sent with the entries.
        self.last = buffers[-1][len(self.values[-1]) - len(self._pieces[-1]) :]
        self.is_finite = True  # what was written
        self._intact = 0

    @property
    def is_intact(self) -> bool:
        """Is it as it was when this was set? Scripts see views of it as their gradients."""
        return self.buffers[0]._version == self._intact

    @is_intact.setter
    def is_intact(self, _: bool) -> None:
        self._intact = self.buffers[0]._version

    def clear(self) -> Iterator[torch.Tensor]:
        """Write zeros. The pieces but the last, each when it is written."""
        for piece in self._pieces:
            piece.zero_()
        return iter(self._pieces[:-1])

    def write(self, value: Block, share: float) -> Iterator[torch.Tensor]:
        """The same with so much of the values."""
        self.is_finite = True
        if isinstance(value, Phantom):
            yield from self.clear()
            return
        tensors = deque(tensor.reshape(-1) for tensor in parts(value))
        for piece in self._pieces:
            place = piece
            while len(place):
                source = tensors.popleft()
                fits = min(len(place), len(source))
                part = source[:fits]
                if share == 1:
                    place[:fits].copy_(part)
                else:
                    torch.mul(part, share, out=place[:fits])
                self.is_finite = self.is_finite and _is_finite(part)
                place = place[fits:]
                if fits < len(source):
                    tensors.appendleft(source[fits:])
            if piece is not self._pieces[-1]:
                yield piece

    def total(self, dtype: torch.dtype) -> torch.Tensor:
        """A copy of the values."""
        if len(self.values) == 1:
            return self.values[0].to(dtype, copy=True)
        return torch.cat([values.to(dtype) for values in self.values])


class _WireSum:
    """Leaves the buffers as they are: somebody may need them yet. Implements `BlockSum`."""

    def __init__(
        self, part: Part, copy: torch.Tensor | None, dtype: torch.dtype, count: int, share: float
    ) -> None:
        self._wire, self._copy, self._share = part.wire, copy, share
        self._given = part.value if isinstance(part.value, Pieces) else None
        self._dtype, self.count = dtype, count

    def add(self, worker: int, gradient: Value) -> None:
        raise AssertionError("it is complete")

    def total(self) -> torch.Tensor:
        assert self._share == 1, "only the mean is known"
        return self._wire.total(self._dtype) if self._copy is None else self._copy

    def mean(self) -> Value:
        if self._share == 1:
            first = self._wire.values[0]
            if self._copy is None and len(self._wire.values) == 1 and first.dtype == self._dtype:
                return torch.div(first, self.count)
            return self.total().div_(self.count)
        (values,) = self._wire.values
        missing = 1 / (self._share * self.count)
        if missing != 1:  # who did not give anything
            values = values * missing
        return Pieces(split_like(values, self._given.parts)) if self._given else values


def _is_finite(part: torch.Tensor) -> bool:
    return not part.is_floating_point() or all_finite(part)


def split_like(block: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Consecutive parts of it as long as these are: views of the same shapes."""
    flat = torch.split(block, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(flat, tensors, strict=True)]
