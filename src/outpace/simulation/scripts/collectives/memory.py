"""Memory for the tensors of collectives, which a script's process shares with the simulation."""

from __future__ import annotations

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any, Final

import torch

from outpace.simulation.executors.arena import anonymous_file

_ALIGNED: Final = 64  # bytes


class CallMemory:
    """Memory that two processes share, and that can grow. The second gets it when it starts.

    One side writes a tensor while the other waits.
    """

    def __init__(self, file: int | None = None) -> None:
        self._file = anonymous_file(0) if file is None else file
        self._memory: mmap.mmap | None = None

    def view(self, place: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the vector that begins at this byte."""
        if not elements:
            return torch.empty(0, dtype=dtype, device="cpu")
        if self._memory is None or len(self._memory) < place + elements * dtype.itemsize:
            self._memory = mmap.mmap(self._file, os.fstat(self._file).st_size)
        return torch.frombuffer(self._memory, dtype=dtype, count=elements, offset=place)

    def require(self, size: int) -> None:
        """Let the memory grow to this size in bytes, if it is smaller."""
        if os.fstat(self._file).st_size < size:
            os.ftruncate(self._file, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)

    def close(self) -> None:
        """Let this process use the memory no more. The last view of it frees it."""
        os.close(self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited, (DupFd(self._file),)


def _inherited(file: Any) -> CallMemory:
    return CallMemory(file.detach())


class Places:
    """Finds places in the memory for the tensors of collectives that have not ended."""

    def __init__(self, memory: CallMemory) -> None:
        self._memory = memory
        self._ends: dict[int, int] = {}  # by the place

    def take(self, size: int) -> int:
        """Return the first byte of a place for `size` bytes."""
        place = max(self._ends.values(), default=0)
        self._ends[place] = place + max(_ALIGNED, -(-size // _ALIGNED) * _ALIGNED)
        self._memory.require(self._ends[place])
        return place

    def give_back(self, place: int) -> None:
        """Let another collective have this place."""
        del self._ends[place]
