"""Parameters in other blocks, and views of a block from its start."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outpace.blocks.block import Block, Phantom, Pieces, parts, value_of


def recut(blocks: Sequence[Block], slices: Sequence[slice]) -> Sequence[Block]:
    """Return the blocks of these slices of the parameters, if there is another number of blocks."""
    if len(blocks) == len(slices):
        return blocks
    values = list(map(value_of, blocks))
    if isinstance(values[0], Phantom):
        size = sum(value.nbytes for value in values) // slices[-1].stop  # of an element
        return [Phantom(size * (part.stop - part.start)) for part in slices]
    flat = torch.cat([part for value in values for part in parts(value)])
    return [flat[part] for part in slices]


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
