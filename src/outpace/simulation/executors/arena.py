"""Memory that processes share, with slots, each for the blocks of one flat vector.

The memory has no name, so nothing is left behind when processes are killed, and no limit of
/dev/shm applies.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from typing import Any

import torch


class SharedMemory:
    """Memory that two processes share, and that can grow.

    If it is pickled for a process that is being started, both processes have the same memory.
    """

    def __init__(self, file: int | None = None) -> None:
        self._file = _anonymous_file() if file is None else file
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
        """Release the memory in this process. It is freed with its last view."""
        os.close(self._file)
        self._memory = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited, (type(self), DupFd(self._file))


def _inherited(kind: type[SharedMemory], file: Any) -> SharedMemory:
    return kind(file.detach())


def _anonymous_file() -> int:
    """Return the descriptor of an empty file without a name."""
    if sys.platform == "linux":
        return os.memfd_create("outpace")
    with tempfile.TemporaryFile() as named:
        return os.dup(named.fileno())


class Arena:
    """Slots of shared memory.

    Args:
        lengths: The lengths of the blocks of a slot, one after the other.
    """

    def __init__(self, lengths: tuple[int, ...], dtype: torch.dtype, slots: int) -> None:
        self._lengths, self._dtype = lengths, dtype
        pages = -(-sum(lengths) * dtype.itemsize // mmap.PAGESIZE)
        self._slot_bytes = pages * mmap.PAGESIZE
        self._memory = SharedMemory()
        self._memory.require(self._slot_bytes * slots)

    def blocks(self, slot: int) -> list[torch.Tensor]:
        """Return new views of the blocks in a slot."""
        whole = self._memory.view(slot * self._slot_bytes, sum(self._lengths), self._dtype)
        return list(torch.split_with_sizes(whole, self._lengths))

    def write(self, slot: int, blocks: Sequence[torch.Tensor]) -> None:
        for place, block in zip(self.blocks(slot), blocks, strict=True):
            place.copy_(block)

    def close(self) -> None:
        """Release the memory, which is freed with its last view. No other method may follow."""
        self._memory.close()
