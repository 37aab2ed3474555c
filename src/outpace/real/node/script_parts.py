"""Which tensors of a script's model are in a part of the parameters."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.blocks.division import Range, Ranges, shared, size_of


def lengths_within(layers: Sequence[int], part: Ranges) -> dict[int, int]:
    """Return how many elements of each tensor are in a part, by number of the tensor, ascending.

    In the block of the part they lie one after another, in this order.

    layers: number of elements of each tensor.
    """
    found, start = {}, 0
    for number, size in enumerate(layers):
        if mine := shared(part, (Range(start, start + size),)):
            found[number] = size_of(tuple(mine))
        start += size
    return found
