"""Buffers of values that are added up among workers, their sums, and the workers' entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import torch

from outpace.blocks.block import Block, Pieces, Value, parts
from outpace.blocks.sums import BlockSum, all_finite
from outpace.support.units import Time

_PIECE: Final = 1 << 21  # number of elements in a piece, which is sent as soon as it is written
_FIELDS: Final = 5  # number of numbers in an entry


class Digests(NamedTuple):
    """Digests that should be equal in all workers, each below 2^32; 0: not compared."""

    model: int = 0
    settings: int = 0


class Contribution(IntEnum):
    """The kind of a worker's contribution to an all-reduce."""

    NOTHING = 1
    VALUE = 2
    SPOILED = 3  # a value found not to be finite after part of it was sent


class Entry(NamedTuple):
    """Data that a worker sends with its value."""

    part: Contribution
    weight: int  # number of iterations in the value
    joined: Time  # when the worker joined, in ns since the start of the run
    digests: Digests = Digests()


class AccumulatedInBuffer:
    """Accumulates gradients in two alternating buffers. Implements `AccumulatedGradient`.

    Args:
        sizes: numbers of elements and dtypes of the consecutive parts of a gradient.
    """

    def __init__(self, sizes: Sequence[tuple[int, torch.dtype]], device: torch.device) -> None:
        self._sizes, self._device = [each for each in sizes if each[0]], device
        self._buffers: list[Pieces] = []
        self.count = 0

    def _new(self) -> Pieces:
        sizes, device = self._sizes, self._device
        return Pieces([torch.empty(n, dtype=dtype, device=device) for n, dtype in sizes])

    def add(self, gradient: Block) -> None:
        if not self._buffers:
            self._buffers = [self._new(), self._new()]
        # Gradients on a GPU that workers share are added up on the CPU.
        given = [part.reshape(-1).to(self._device) for part in parts(gradient)]
        places = split_among(self._buffers[0].parts, given)
        if self.count:
            torch._foreach_add_(places, given)
        else:
            torch._foreach_copy_(places, given)
        self.count += 1

    def parts(self) -> list[tuple[int, Value]]:
        """Return a copy of the sum, for `restore`."""
        return [(0, self._buffers[0].clone())] if self.count else []

    def restore(self, parts: Iterable[tuple[int, Value]], count: int) -> None:
        """Begin with the `parts` of another sum, which had `count` gradients."""
        for _, part in parts:
            self.add(part)
        self.count = count

    def take(self) -> tuple[Block, int]:
        full, other = self._buffers
        self._buffers = [other, full]  # reused once the next sum is taken
        count, self.count = self.count, 0
        return full if len(full.parts) > 1 else full.parts[0], count


class WireBuffer:
    """The values that a worker sends, and a table with the entries of all workers.

    Each worker has a row of the table that no other worker writes, so that the sum of all tables
    has all entries.

    Args:
        values: tensors of one or two dtypes, one after the other.
    """

    def __init__(self, values: Sequence[torch.Tensor], workers: int) -> None:
        self.values = [each for each in values if len(each)]
        shape, device = (workers, _FIELDS), values[0].device
        self._table = torch.zeros(shape, dtype=torch.int64, device=device)
        self.buffers = [*self.values, self._table]
        self.is_summed = False  # False: the buffers hold this worker's value
        self._pieces = [piece for each in self.values for piece in torch.split(each, _PIECE)]
        self.is_finite = True  # False if the value last written is not finite
        self._intact = 0

    @property
    def is_intact(self) -> bool:
        """True if unchanged since `seal`; scripts may change it through their gradients."""
        return self.buffers[0]._version == self._intact

    def seal(self) -> None:
        """Note that the buffers contain a result."""
        self._intact = self.buffers[0]._version

    def write(
        self, value: Block | None, share: float, unchecked: int = 0
    ) -> Iterator[torch.Tensor]:
        """Write this worker's value; yield each piece once it is written.

        Sets `is_finite`; values are checked while they are sent.

        Args:
            value: consecutive tensors. Zeros are written for a phantom, and for None: the worker
                has no value.
            share: factor of the value.
            unchecked: number of elements at the end that need not be finite.
        """
        self.is_finite = True
        given = deque() if value is None else deque(each.reshape(-1) for each in parts(value))
        if not given:
            for each in self.values:
                each.zero_()
            yield from self._pieces
            return
        elements = sum(map(len, given))
        assert elements == sum(map(len, self.values)), "the value has another size"
        rest = elements - unchecked  # number of elements that must be finite
        for piece in self._pieces:
            taken = _taken(given, len(piece))
            for place, part in zip(torch.split(piece, [*map(len, taken)]), taken, strict=True):
                if share != 1 and part.device == place.device:
                    torch.mul(part, share, out=place)
                else:
                    place.copy_(part)
                    if share != 1:
                        place.mul_(share)
            yield piece
            for part in taken:
                if rest > 0:
                    self.is_finite = self.is_finite and all_finite(part[:rest])
                rest -= len(part)

    def write_entry(self, worker: int, entry: Entry) -> torch.Tensor:
        """Write this worker's entry; return the table."""
        row = [entry.part, entry.weight, entry.joined, *entry.digests]
        self._table.zero_()[worker] = torch.tensor(row, device="cpu")
        return self._table

    def entries(self) -> dict[int, Entry]:
        """Return the entries of the workers in the all-reduce, by worker."""
        rows: list[list[int]] = self._table.tolist()
        return {
            worker: Entry(Contribution(part), weight, joined, Digests(*digests))
            for worker, (part, weight, joined, *digests) in enumerate(rows)
            if part
        }

    def total(self, dtype: torch.dtype) -> Value:
        """Return a copy of the values in this dtype; a tail with another dtype keeps it."""
        if len(self.values) == 1:
            return self.values[0].to(dtype, copy=True)
        first, tail = self.values
        if tail.dtype == dtype:
            return torch.cat([first.to(dtype), tail])
        return Pieces([first.to(dtype, copy=True), tail.clone()])


def _taken(tensors: deque[torch.Tensor], elements: int) -> list[torch.Tensor]:
    """Take a number of elements from the beginning of consecutive flat tensors."""
    found = []
    while elements:
        first = tensors.popleft()
        if len(first) > elements:
            tensors.appendleft(first[elements:])
            first = first[:elements]
        found.append(first)
        elements -= len(first)
    return found


class WireSum(BlockSum):
    """The sum in a wire buffer.

    Its methods do not change the buffer, because other workers may still need the sum.

    Args:
        given: this worker's value; if it is in pieces and `share` is not 1, the mean is in pieces
            as well.
        copy: a copy of the sum; None if none was made.
        count: number of workers with a value.
        share: factor by which each value was multiplied when it was written.
    """

    def __init__(
        self,
        wire: WireBuffer,
        given: Block | None,
        copy: Value | None,
        dtype: torch.dtype,
        count: int,
        share: float,
    ) -> None:
        self._wire, self._copy, self._share = wire, copy, share
        self._given = given if isinstance(given, Pieces) else None
        self._dtype, self.count = dtype, count

    def add(self, worker: int, gradient: Value) -> None:
        raise AssertionError("it is complete")

    def total(self) -> Value:
        assert self._share == 1, "only the mean is known"
        return self._wire.total(self._dtype) if self._copy is None else self._copy

    def mean(self) -> Value:
        if self._share == 1:
            first = self._wire.values[0]
            if self._copy is None and len(self._wire.values) == 1 and first.dtype == self._dtype:
                return torch.div(first, self.count)
            return self.total().div_(self.count)
        values = self._wire.values
        missing = 1 / (self._share * self.count)
        if missing != 1:  # some workers have no value
            values = [each * missing for each in values]
        if self._given is not None:
            return Pieces(split_among(values, self._given.parts))
        return Pieces(values) if len(values) > 1 else values[0]


def split_among(
    blocks: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return views of consecutive parts of some blocks, in the shapes of `tensors`.

    Each part lies within one block.
    """
    found, number, start = [], 0, 0
    for tensor in tensors:
        if start == len(blocks[number]):
            number, start = number + 1, 0
        part = blocks[number][start : start + tensor.numel()]
        found.append(part.view(tensor.shape))
        start += len(part)
    return found
