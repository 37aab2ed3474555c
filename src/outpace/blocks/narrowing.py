"""Converts blocks for transfer to bfloat16, a float32 without its lower 16 bits.

The sender rounds each number to the nearest bfloat16, ties to even. The receiver converts it back
to the precision of the parameters. Numbers of two bytes are sent unchanged.
"""

from __future__ import annotations

import weakref
from typing import Final, Literal, NamedTuple, Self, TypeAlias

import torch

from outpace.blocks.block import Block, Deferred, Phantom, Pieces, Value, parts, value_of

Wire: TypeAlias = Literal["full", "bf16"]  # precision in which values are sent

NARROW: Final = torch.bfloat16
_BYTES: Final = NARROW.itemsize


def is_narrowed(dtype: torch.dtype) -> bool:
    """True if numbers of this dtype are rounded on the wire."""
    return dtype.itemsize > _BYTES


def narrowed(block: Block) -> Block:
    """Return a copy of a block in bfloat16; the block itself if its numbers have two bytes.

    A phantom counts as a float32 block. A float64 is rounded to float32 first.
    """
    if isinstance(block, Phantom):
        return Phantom(block.nbytes // 2)
    if not is_narrowed(block.dtype):
        return block
    if isinstance(block, Deferred):
        return Deferred(block.numel(), NARROW, lambda: _rounded(value_of(block)))
    return _rounded(block)


def _rounded(value: Value) -> torch.Tensor:
    found = parts(value)
    rounded = found[0].new_empty(sum(part.numel() for part in found), dtype=NARROW)
    for part, place in zip(
        found, torch.split(rounded, [part.numel() for part in found]), strict=True
    ):
        place.copy_(part.detach())
    return rounded


def widened(value: Value, dtype: torch.dtype) -> Value:
    """Return the numbers of a block in this dtype: the block itself if it has this dtype."""
    if isinstance(value, Phantom) or value.dtype == dtype:
        return value
    if isinstance(value, Pieces):
        return Pieces([part.to(dtype) for part in value.parts], value.finite)
    return value.to(dtype)


class Full(NamedTuple):
    """The form of a block before its conversion. dtype: None for a `Phantom`."""

    dtype: torch.dtype | None
    nbytes: int

    @classmethod
    def of(cls, block: Block) -> Self:
        """Return the form of a block."""
        return cls(None if isinstance(block, Phantom) else block.dtype, block.nbytes)

    def restored(self, value: Value) -> Value:
        """Return a block of this form with these numbers."""
        return Phantom(self.nbytes) if self.dtype is None else widened(value, self.dtype)


class LastNarrowed:
    """Converts a block only once if it is sent to several receivers."""

    def __init__(self) -> None:
        self._last: weakref.ref[torch.Tensor | Pieces] | None = None
        self._narrowed: Block

    def __call__(self, value: Value) -> Block:
        """Return the converted block: for the same value as in the last call, the same block."""
        if isinstance(value, Phantom):
            return narrowed(value)
        if self._last is None or self._last() is not value:
            self._last, self._narrowed = weakref.ref(value), narrowed(value)
        return self._narrowed
