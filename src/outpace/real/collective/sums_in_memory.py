"""The sum of buffers that all members of a group have mapped, each adding up a share of it.

A member fills its own share only while it adds it up: no other member reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import torch

from outpace.blocks.sums import TreeSum, all_finite

# Writes a member's values into this part of its buffer of this number.
Fill: TypeAlias = Callable[[int, slice], object]

_AT_ONCE_BYTES: Final = 1 << 19  # of each member: they stay in the cache until all have the sum
_ALIGNED_BYTES: Final = 4096  # members write to pages of their own


def fill_shares_of_others(
    buffers: Sequence[torch.Tensor], rank: int, size: int, fill: Fill
) -> None:
    """Fill the buffers of member number `rank`, except for what it adds up itself."""
    for number, buffer in enumerate(buffers):
        share = share_of(buffer, rank, size)
        fill(number, slice(0, share.start))
        fill(number, slice(share.stop, len(buffer)))


def add_share(
    members: Sequence[int],
    rank: int,
    buffers: Sequence[Sequence[torch.Tensor]],
    fill: Fill,
    checked: int | None = None,
) -> bool:
    """Replace the share of member number `rank` by the sum over all members, in all their buffers.

    The sum is that of `TreeSum`, so it does not depend on the order of the members' arrival.

    Args:
        members: workers, in ascending order. buffers: those of each of them, equal in sizes.
        checked: number of elements at the beginning of the buffers that are to be finite; None:
            all of them.

    Returns:
        True if the sum is finite.
    """
    is_finite = True
    left = sum(map(len, buffers[0])) if checked is None else checked  # from this buffer on
    for number, same in enumerate(zip(*buffers, strict=True)):
        for part in _parts(share_of(same[0], rank, len(members)), same[0].itemsize):
            fill(number, part)
            pieces = [buffer[part] for buffer in same]
            total = TreeSum(max(members) + 1)
            for member, piece in zip(members, pieces, strict=True):
                total.add(member, piece)
            summed = total.total()  # one of the pieces
            for piece in pieces:
                if piece is not summed:
                    piece.copy_(summed)
            if summed.is_floating_point():
                is_finite = is_finite and all_finite(summed[: max(0, left - part.start)])
        left -= len(same[0])
    return is_finite


def share_of(buffer: torch.Tensor, rank: int, size: int) -> slice:
    """Return the elements that this member adds up: about one part in `size`, perhaps none."""
    per_page = _ALIGNED_BYTES // buffer.itemsize
    pages = -(-len(buffer) // per_page)
    first, last = (min(len(buffer), n * pages // size * per_page) for n in (rank, rank + 1))
    return slice(first, last)


def _parts(share: slice, itemsize: int) -> Iterator[slice]:
    """Cut a share into slices of `_AT_ONCE_BYTES`."""
    elements = _AT_ONCE_BYTES // itemsize
    for start in range(share.start, share.stop, elements):
        yield slice(start, min(start + elements, share.stop))
