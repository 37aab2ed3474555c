"""The sum of buffers that all members of a group have mapped, each adding up a share of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch

from outpace.blocks.sums import TreeSum

_AT_ONCE_BYTES: Final = 1 << 18  # of each member: they stay in the cache until all have the sum
_ALIGNED_BYTES: Final = 4096  # members write to pages of their own


def add_share(members: Sequence[int], rank: int, buffers: Sequence[Sequence[torch.Tensor]]) -> None:
    """Replace the share of member number `rank` by the sum over all members, in all their buffers.

    The sum is that of `TreeSum`, so it does not depend on the order of the members' arrival.

    Args:
        members: workers, in ascending order. buffers: those of each of them, equal in sizes.
    """
    for same in zip(*buffers, strict=True):
        for part in _parts(share_of(same[0], rank, len(members)), same[0].itemsize):
            pieces = [buffer[part] for buffer in same]
            total = TreeSum(max(members) + 1)
            for member, piece in zip(members, pieces, strict=True):
                total.add(member, piece)
            summed = total.total()  # one of the pieces
            for piece in pieces:
                if piece is not summed:
                    piece.copy_(summed)


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
