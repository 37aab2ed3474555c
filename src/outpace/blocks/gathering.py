"""Gradients of parameters, joined into the blocks of the servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

import torch

# Returns memory for the block with this number, of so many elements; None: any memory will do.
BlockMemory: TypeAlias = Callable[[int, int, torch.dtype], torch.Tensor | None]


def no_block_memory(block: int, elements: int, dtype: torch.dtype) -> None:
    """A `BlockMemory` that has none."""


def gathered(
    tensors: Sequence[torch.Tensor], slices: Sequence[slice], memory: BlockMemory = no_block_memory
) -> list[torch.Tensor]:
    """Return a copy of the parts of the vector that consists of all elements of these tensors.

    Args:
        tensors: of one dtype; at least one.
        slices: of the vector; shape of the block of slice s: (s.stop - s.start,).
        memory: where blocks are made; others are views of one vector, or have memory of their own.
    """
    flat = [tensor.reshape(-1) for tensor in tensors]
    given = [memory(n, part.stop - part.start, flat[0].dtype) for n, part in enumerate(slices)]
    if all(place is None for place in given):
        vector = torch.cat(flat)
        return [vector[part] for part in slices]
    bounds = list(pairwise(accumulate((tensor.numel() for tensor in flat), initial=0)))
    blocks = []
    for part, place in zip(slices, given, strict=True):
        pieces = [
            tensor[max(low, part.start) - low : min(high, part.stop) - low]
            for tensor, (low, high) in zip(flat, bounds, strict=True)
            if max(low, part.start) < min(high, part.stop)
        ]
        blocks.append(torch.cat(pieces or [flat[0][:0]], out=place))
    return blocks
