"""Joins gradients of parameters into the blocks of the servers, and tells when a block is complete.

A block is complete in a backward pass when the gradients of all parameters in it are made; where
there is no backward pass, that time is estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch


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

    def block(self, number: int, tensor: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """Return a copy of one block, on the CPU.

        Args:
            tensor: returns the tensor with a given number.
        """
        pieces = [
            tensor(each.tensor).reshape(-1)[each.low : each.high] for each in self.pieces[number]
        ]
        return torch.cat(pieces).cpu()  # those on a GPU are joined there and copied at once

    def blocks(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return a copy of all blocks, on the CPU: views of one vector."""
        vector = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu()
        return [vector[part] for part in self.slices]


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
        """Forget which tensors are complete. absent: numbers of tensors that will not come."""
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
