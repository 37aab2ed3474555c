"""A block in pieces, as it came over a wire.

Copying 25 MB together costs as much as adding them up. So a large block stays in the
memory that the network layer received it in, until somebody computes with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Pieces:
    """A 1-D tensor cut into consecutive parts. Whoever receives it owns it, as any block."""

    __slots__ = ("dtype", "finite", "nbytes", "parts")

    def __init__(self, parts: Sequence[torch.Tensor], finite: bool | None = None) -> None:
        """Parts that are added to each other must have been cut alike.

        finite: are all entries? None: nobody has looked.
        """
        self.parts, self.finite = parts, finite
        self.dtype = parts[0].dtype
        self.nbytes: int = sum(part.nbytes for part in parts)

    def numel(self) -> int:
        return self.nbytes // self.dtype.itemsize

    def add_(self, other: Pieces) -> Pieces:
        """Add another in place."""
        self.finite = None
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.add_(theirs)
        return self

    def div_(self, divisor: float) -> Pieces:
        """Divide in place."""
        for part in self.parts:
            part.div_(divisor)
        return self

    def whole(self) -> torch.Tensor:
        """A copy in one piece."""
        return torch.cat(list(self.parts))

    def copy_to(self, target: torch.Tensor) -> None:
        """Copy into a 1-D tensor of the same length."""
        for part, place in zip(self.parts, self.split(target), strict=True):
            place.copy_(part)

    def split(self, block: torch.Tensor | Pieces) -> Sequence[torch.Tensor]:
        """A block of the same length cut in the same way: views, unless it is cut otherwise."""
        lengths = [part.numel() for part in self.parts]
        if isinstance(block, Pieces):
            if [part.numel() for part in block.parts] == lengths:
                return block.parts
            block = block.whole()
        return torch.split(block, lengths)
