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
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing.reduction import DupFd
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The lengths of the blocks of a slot, one after the other."""

    lengths: tuple[int, ...]
    dtype: torch.dtype

    @property
    def slot_bytes(self) -> int:
        """Size of a slot, in whole pages."""
        return -(-sum(self.lengths) * self.dtype.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE


class Arena:
    """Slots of shared memory. Pickled for a process that is being started, it stays the same one.

    Args:
        file: Descriptor of the memory of an existing arena.
    """

    def __init__(self, layout: SlotLayout, slots: int, file: int | None = None) -> None:
        size = layout.slot_bytes * slots
        self._layout, self._slots = layout, slots
        self._file = _anonymous_file(size) if file is None else file
        self._memory = mmap.mmap(self._file, size)

    def blocks(self, slot: int) -> list[torch.Tensor]:
        """Return new views of the blocks in a slot."""
        layout = self._layout
        starts = accumulate(layout.lengths, initial=0)
        base = slot * layout.slot_bytes
        return [
            torch.frombuffer(
                self._memory,
                dtype=layout.dtype,
                count=length,
                offset=base + start * layout.dtype.itemsize,
            )
            for length, start in zip(layout.lengths, starts, strict=False)
        ]

    def write(self, slot: int, blocks: Sequence[torch.Tensor]) -> None:
        for place, block in zip(self.blocks(slot), blocks, strict=True):
            place.copy_(block)

    def close(self) -> None:
        """Give the memory up; it is freed with the last view. No other method may follow."""
        os.close(self._file)
        del self._memory

    def __reduce__(self) -> tuple[Callable[..., Arena], tuple[Any, ...]]:
        return _attached, (DupFd(self._file), self._layout, self._slots)


def _attached(file: Any, layout: SlotLayout, slots: int) -> Arena:
    return Arena(layout, slots, file.detach())


def _anonymous_file(size: int) -> int:
    if sys.platform == "linux":
        file = os.memfd_create("outpace")
    else:
        with tempfile.TemporaryFile() as named:
            file = os.dup(named.fileno())
    os.ftruncate(file, size)
    return file
