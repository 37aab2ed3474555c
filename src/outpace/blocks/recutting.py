"""Blocks of one division of the parameters out of the blocks of another, without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch

from outpace.blocks.block import Block, Phantom, Pieces, Value, parts, value_of
from outpace.blocks.division import Division, Range, Ranges, places_within, shared, size_of


class Recut:
    """Makes the block of one server's part out of the blocks of another division.

    Args:
        part: of the server.
        source: the division of the blocks that there are.
    """

    def __init__(self, part: Ranges, source: Division) -> None:
        self._size = size_of(part)
        found: list[tuple[Range, int]] = []
        for server, other in source.parts.items():
            found += [(piece, server) for piece in shared(other, part)]
        self._pieces = [
            (server, place)
            for piece, server in sorted(found)
            for place in places_within(source.parts[server], [piece])
        ]
        self._sizes = {server: source.size(server) for server in source.parts}

    @property
    def sources(self) -> set[int]:
        """The servers whose blocks are needed."""
        return {server for server, _ in self._pieces}

    def block(self, blocks: Mapping[int, Value]) -> Value:
        """Return the block: views of those that there are, which must not change any more."""
        first = blocks[self._pieces[0][0]]
        if isinstance(first, Phantom):
            server = self._pieces[0][0]
            return Phantom(first.nbytes * self._size // self._sizes[server])
        found = [view for server, place in self._pieces for view in views(blocks[server], place)]
        return found[0] if len(found) == 1 else Pieces(found)


def recut(blocks: Sequence[Block], slices: Sequence[slice]) -> Sequence[Block]:
    """Return the blocks of these slices of the parameters, if there is another number of blocks."""
    if len(blocks) == len(slices):
        return blocks
    values = dict(enumerate(map(value_of, blocks)))
    ends = [0, *accumulate(value.nbytes // 4 for value in values.values())]
    source = Division.of_slices(slice(low, high) for low, high in pairwise(ends))
    return [Recut((Range(part.start, part.stop),), source).block(values) for part in slices]


def views(block: Block, place: slice) -> list[torch.Tensor]:
    """Return consecutive views of a place in a block that has values."""
    found, start = [], 0
    for part in parts(block):
        low, high = max(place.start, start), min(place.stop, start + part.numel())
        if low < high:
            found.append(part[low - start : high - start])
        start += part.numel()
    return found


class Walk:
    """Gives views of a block that has values, one after another from its start."""

    def __init__(self, block: torch.Tensor | Pieces) -> None:
        self._parts = iter(parts(block))
        self._part, self._start = next(self._parts), 0

    def next(self, elements: int) -> list[torch.Tensor]:
        """Return consecutive views of the next elements."""
        found = []
        while elements > (left := self._part.numel() - self._start):
            if left:
                found.append(self._part[self._start :])
            elements -= left
            self._part, self._start = next(self._parts), 0
        end = self._start + elements
        found.append(self._part[self._start : end])
        self._start = end
        return found


def values_of(blocks: Sequence[Block | None]) -> dict[int, Value] | None:
    """Return the blocks by number, computed now if they are deferred; None if all are None.

    Raises ValueError if only some of them are None.
    """
    found = {number: value_of(block) for number, block in enumerate(blocks) if block is not None}
    if found and len(found) < len(blocks):
        raise ValueError("a gradient of some servers only cannot be cut for others")
    return found or None
