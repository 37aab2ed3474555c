"""Memory that the simulation shares with a script's process."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.reduction import DupFd
from typing import Any, Final

import torch

from outpace.engine.scripts.buffers import BufferLayout
from outpace.simulation.executors.arena import anonymous_file

_ALIGNED: Final = 8  # bytes


@dataclass(slots=True)
class Slots:
    """Shared memory for the parameters and the gradient of one worker.

    Beside each of them is the vector of averaged model buffers (`engine.scripts.buffers`). Its size
    is known once the script has attached; pickled for a process that is being started, it stays
    the same memory.
    """

    file: int = field(default_factory=lambda: anonymous_file(0))
    parameters: torch.Tensor = field(init=False)
    gradient: torch.Tensor = field(init=False)
    to_load: torch.Tensor = field(init=False)  # the vector beside the parameters
    computed: torch.Tensor = field(init=False)  # the vector beside the gradient

    def open(self, elements: int, dtype: torch.dtype, buffers: BufferLayout) -> None:
        """Give each slot its size; both sides call it, the simulation first."""
        of_buffers = buffers.elements * buffers.dtype.itemsize
        start = -(-2 * elements * dtype.itemsize // _ALIGNED) * _ALIGNED
        size = start + 2 * of_buffers
        if os.fstat(self.file).st_size < size:
            os.ftruncate(self.file, size)
        memory = torch.frombuffer(mmap.mmap(self.file, size), dtype=torch.uint8)
        flat = memory[: 2 * elements * dtype.itemsize].view(dtype)
        self.parameters, self.gradient = flat[:elements], flat[elements:]
        beside = memory[start:].view(buffers.dtype)
        self.to_load, self.computed = beside[: buffers.elements], beside[buffers.elements :]

    def close(self) -> None:
        """Give the memory up; it is freed with the last view."""
        os.close(self.file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited, (DupFd(self.file),)


def _inherited(file: Any) -> Slots:
    return Slots(file.detach())


def fill(slot: torch.Tensor, pieces: Sequence[torch.Tensor]) -> None:
    """Copy consecutive vectors into a slot, from its beginning."""
    place = 0
    for piece in pieces:
        slot[place : place + piece.numel()].copy_(piece)
        place += piece.numel()
