"""Memory that processes share, in slots, each for the blocks of one flat vector.

The memory has no name, so nothing is left behind when processes are killed, and no limit of
/dev/shm applies.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.reduction import DupFd
from typing import Any

import torch


class Arena:
    """Slots of shared memory. Pickled for a process that is being started, it stays the same one.

    Args:
        lengths: The lengths of the blocks of a slot, which lie one after the other.
        file: Descriptor of the memory of an existing arena.
    """

    def __init__(
        self, lengths: tuple[int, ...], dtype: torch.dtype, slots: int, file: int | None = None
    ) -> None:
        self._lengths, self._dtype, self._slots = lengths, dtype, slots
        pages = -(-sum(lengths) * dtype.itemsize // mmap.PAGESIZE)
        self._slot_bytes = pages * mmap.PAGESIZE
        size = self._slot_bytes * slots
        self._file = anonymous_file(size) if file is None else file
        self._memory = mmap.mmap(self._file, size)

    def blocks(self, slot: int) -> list[torch.Tensor]:
        """Return new views of the blocks in a slot."""
        whole = torch.frombuffer(
            self._memory,
            dtype=self._dtype,
            count=sum(self._lengths),
            offset=slot * self._slot_bytes,
        )
        return list(torch.split_with_sizes(whole, self._lengths))

    def write(self, slot: int, blocks: Sequence[torch.Tensor]) -> None:
        for place, block in zip(self.blocks(slot), blocks, strict=True):
            place.copy_(block)

    def close(self) -> None:
        """Give the memory up; it is freed with the last view. No other method may follow."""
        os.close(self._file)
        del self._memory

    def __reduce__(self) -> tuple[Callable[..., Arena], tuple[Any, ...]]:
        return _attached, (self._lengths, self._dtype, self._slots, DupFd(self._file))


def _attached(lengths: tuple[int, ...], dtype: torch.dtype, slots: int, file: Any) -> Arena:
    return Arena(lengths, dtype, slots, file.detach())


def anonymous_file(size: int) -> int:
    """Return the descriptor of a file of that size, in bytes, that has no name."""
    if sys.platform == "linux":
        file = os.memfd_create("outpace")
    else:
        with tempfile.TemporaryFile() as named:
            file = os.dup(named.fileno())
    os.ftruncate(file, size)
    return file
