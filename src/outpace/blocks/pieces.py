"""A block in pieces, as it was received.

Joining 25 MB costs as much as adding them. So a large block stays in the memory in which the
network layer received it until it is used in a computation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Pieces:
    """A 1-D tensor cut into consecutive parts. As with any block, the receiver owns it.

    Args:
        parts: Blocks that are added to each other must have been cut alike.
        finite: True if all entries are finite; None if that is unknown.
    """

    __slots__ = ("dtype", "finite", "nbytes", "parts")

    def __init__(self, parts: Sequence[torch.Tensor], finite: bool | None = None) -> None:
        self.parts, self.finite = parts, finite
        self.dtype = parts[0].dtype
        self.nbytes: int = sum(part.nbytes for part in parts)

    def numel(self) -> int:
        return self.nbytes // self.dtype.itemsize

    def add_(self, other: Pieces) -> Pieces:
        """Add another block in place and return this one."""
        self.finite = None
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.add_(theirs)
        return self

    def div_(self, divisor: float) -> Pieces:
        """Divide in place and return this block."""
        for part in self.parts:
            part.div_(divisor)
        return self

    def whole(self) -> torch.Tensor:
        """Return a copy in one piece."""
        return torch.cat(list(self.parts))

    def copy_to(self, target: torch.Tensor) -> None:
        """Copy into a 1-D tensor of the same length."""
        for part, place in zip(self.parts, self.split(target), strict=True):
            place.copy_(part)

    def split(self, block: torch.Tensor | Pieces) -> Sequence[torch.Tensor]:
        """Cut a block of the same length in the same way; views, unless it is cut otherwise."""
        lengths = [part.numel() for part in self.parts]
        if isinstance(block, Pieces):
            if [part.numel() for part in block.parts] == lengths:
                return block.parts
            block = block.whole()
        return torch.split(block, lengths)
