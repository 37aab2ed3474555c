"""Memory that the simulation shares with a script's process from the process's start.

One side writes while the other waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import torch

from outpace.blocks.block import Block, Deferred
from outpace.engine.scripts.buffers import BufferLayout
from outpace.simulation.executors.arena import SharedMemory

_ALIGNED: Final = 64  # bytes


class Slots(SharedMemory):
    """The parameters and the gradient of one worker.

    Each slot is followed by a vector of averaged model buffers (`engine.scripts.buffers`), whose
    size is known once the script has attached.

    Attributes:
        to_load: the vector after the parameters.
        computed: the vector after the gradient.
    """

    parameters: torch.Tensor
    gradient: torch.Tensor
    to_load: torch.Tensor
    computed: torch.Tensor

    def open(self, elements: int, dtype: torch.dtype, buffers: BufferLayout) -> None:
        """Give each slot its size; both sides call it, the simulation first."""
        start = _aligned(2 * elements * dtype.itemsize)
        self.require(start + 2 * buffers.elements * buffers.dtype.itemsize)
        flat = self.view(0, 2 * elements, dtype)
        self.parameters, self.gradient = flat[:elements], flat[elements:]
        beside = self.view(start, 2 * buffers.elements, buffers.dtype)
        self.to_load, self.computed = beside[: buffers.elements], beside[buffers.elements :]


class CallMemory(SharedMemory):
    """The tensors of collectives that have not ended, each at a separate place."""

    def __init__(self, file: int | None = None) -> None:
        super().__init__(file)
        self._ends: dict[int, int] = {}  # by the place

    def take(self, size: int) -> int:
        """Return the first byte of a free place for `size` bytes."""
        needed, place = max(_ALIGNED, _aligned(size)), 0
        for begins, ends in sorted(self._ends.items()):
            if begins - place >= needed:
                break
            place = ends
        self._ends[place] = place + needed
        self.require(place + needed)
        return place

    def give_back(self, place: int) -> None:
        """Make this place free for another collective."""
        del self._ends[place]


class StepGradient:
    """The gradient of a step. It is in the slot of the process until it is read.

    Args:
        slot: the gradient; overwritten in the next step.
    """

    def __init__(self, slot: torch.Tensor) -> None:
        self._slot: torch.Tensor | None = slot
        self._flat: torch.Tensor
        self.dtype, self.elements = slot.dtype, len(slot)

    def take(self) -> None:
        """Copy the gradient out of the slot, before the slot is overwritten."""
        if self._slot is not None:
            self._flat, self._slot = self._slot.clone(), None

    def blocks(self, slices: Sequence[slice]) -> list[Block]:
        """Return a block for each slice, to be read at most once."""
        return [
            Deferred(part.stop - part.start, self.dtype, partial(self._part, part))
            for part in slices
        ]

    def read(self) -> torch.Tensor:
        """Return the whole content of the slot."""
        self.take()
        return self._flat

    def _part(self, part: slice) -> torch.Tensor:
        return self.read()[part]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def fill(slot: torch.Tensor, pieces: Sequence[torch.Tensor]) -> None:
    """Copy consecutive vectors into a slot, from its beginning."""
    place = 0
    for piece in pieces:
        slot[place : place + piece.numel()].copy_(piece)
        place += piece.numel()
