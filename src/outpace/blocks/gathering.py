"""Joins gradients of parameters into the blocks of the servers, and tells when a block is complete.

A block is complete in a backward pass when the gradients of all parameters in it are made; where
there is no backward pass, that time is estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

import torch

# Returns memory for the block with this number and number of elements; None: any memory.
BlockMemory: TypeAlias = Callable[[int, int, torch.dtype], torch.Tensor | None]


def no_block_memory(block: int, elements: int, dtype: torch.dtype) -> None:
    """A `BlockMemory` that has no memory."""


class Piece(NamedTuple):
    """The elements of one tensor that belong to one block."""

    tensor: int  # the number of the tensor
    low: int
    high: int


class Gathering:
    """Joins tensors, one for each parameter, into blocks: slices of the vector of all elements.

    Args:
        layers: number of elements of each tensor, in order.
        slices: one for each block; none is empty.

    Attributes:
        pieces: the pieces of each block, in order.
    """

    def __init__(self, layers: Sequence[int], slices: Sequence[slice]) -> None:
        self.slices = list(slices)
        bounds = list(pairwise(accumulate(layers, initial=0)))
        self.pieces = [
            [
                Piece(number, max(low, part.start) - low, min(high, part.stop) - low)
                for number, (low, high) in enumerate(bounds)
                if max(low, part.start) < min(high, part.stop)
            ]
            for part in slices
        ]

    def block(
        self,
        number: int,
        tensor: Callable[[int], torch.Tensor],
        memory: BlockMemory = no_block_memory,
    ) -> torch.Tensor:
        """Return a copy of one block, on the CPU.

        Args:
            tensor: returns the tensor with a given number.
            memory: gives the memory of the copy, unless the tensors are on a GPU.
        """
        pieces = [
            tensor(each.tensor).reshape(-1)[each.low : each.high] for each in self.pieces[number]
        ]
        if _is_elsewhere(pieces[0]):
            return torch.cat(pieces).cpu()
        return torch.cat(pieces, out=memory(number, sum(map(len, pieces)), pieces[0].dtype))

    def blocks(
        self, tensors: Sequence[torch.Tensor], memory: BlockMemory = no_block_memory
    ) -> list[torch.Tensor]:
        """Return a copy of all blocks, on the CPU.

        Args:
            memory: gives the memory of the copies, unless the tensors are on a GPU. Without it, the
                blocks are views of one vector.
        """
        dtype = tensors[0].dtype
        sizes = [part.stop - part.start for part in self.slices]
        if _is_elsewhere(tensors[0]):
            memory = no_block_memory
        places = [memory(number, size, dtype) for number, size in enumerate(sizes)]
        if all(place is None for place in places):
            vector = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu()
            return [vector[part] for part in self.slices]

        def place(block: int, _: int, __: torch.dtype) -> torch.Tensor | None:
            return places[block]

        return [self.block(n, tensors.__getitem__, place) for n in range(len(places))]


def _is_elsewhere(tensor: torch.Tensor) -> bool:
    """Return True for a tensor on a GPU: such tensors are joined there and copied at once."""
    return tensor.device.type != "cpu"


class Readiness:
    """Tells which parts of a flat vector are complete, while its tensors are made one by one.

    Args:
        layers: number of elements of each tensor, in order.
        slices: the parts, in order and without gaps.

    Attributes:
        part: returns a copy of a part: see `Gathering.block`.
    """

    def __init__(self, layers: Sequence[int], slices: Sequence[slice]) -> None:
        gathering = Gathering(layers, slices)
        self.part = gathering.block
        self._pieces = gathering.pieces
        self._parts: list[list[int]] = [[] for _ in layers]  # for each tensor
        for place, pieces in enumerate(self._pieces):
            for piece in pieces:
                self._parts[piece.tensor].append(place)
        self._missing: list[int] = []

    def begin(self, absent: Collection[int] = ()) -> None:
        """Forget which tensors are complete. absent: numbers of tensors that are not waited for."""
        self._missing = list(map(len, self._pieces))
        for number in absent:
            for place in self._parts[number]:
                self._missing[place] -= 1

    def made(self, number: int) -> list[int]:
        """Return the parts that are complete now that this tensor is; the last part first."""
        complete = []
        for place in reversed(self._parts[number]):
            self._missing[place] -= 1
            if not self._missing[place]:
                complete.append(place)
        return complete

    def tensors(self, place: int) -> list[int]:
        """Return the numbers of the tensors that have a piece in a part."""
        return [piece.tensor for piece in self._pieces[place]]


def shares_until_ready(slices: Sequence[slice], forward_share: float) -> list[float]:
    """Return, for each part, the share of a computation after which its gradient is complete.

    This is an estimate: the forward pass takes `forward_share` of the time, and the backward pass
    then computes the gradient from the last element to the first, each in the same time. So a part
    is complete when its first element is complete. The share of the first part is 1.
    """
    elements = slices[-1].stop
    return [1 - (1 - forward_share) * part.start / elements for part in slices]
