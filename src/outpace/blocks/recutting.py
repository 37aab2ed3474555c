"""Parameters in other blocks, and the parts of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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


def consecutive(block: torch.Tensor | Pieces, lengths: Iterable[int]) -> Iterator[torch.Tensor]:
    """Yield consecutive parts of a block from its start.

    They are views, but for copies of those that lie in several pieces.

    Args:
        lengths: of the parts, at most as long as the block together.
    """
    pieces = iter(parts(block))
    piece = next(pieces)
    for length in lengths:
        found = []
        while length > len(piece):
            if len(piece):
                found.append(piece)
            length -= len(piece)
            piece = next(pieces)
        found.append(piece[:length])
        piece = piece[length:]
        yield found[0] if len(found) == 1 else torch.cat(found)
