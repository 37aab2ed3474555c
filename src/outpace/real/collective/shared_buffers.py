"""The buffers of an all-reduce in memory that the other workers of the machine can map."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final

import torch

from outpace.real.net.memory.limits import why_no_files, why_no_memory
from outpace.real.net.memory.segments import OwnSlot, is_available

# Smaller all-reduces go over Gloo, which is as fast for two workers: in one that goes through
# memory the workers meet twice.
LEAST_BYTES: Final = 1 << 20
_ALIGNED: Final = 64  # bytes: a line of the cache


class SharedBuffers:
    """Buffers of this worker, one after the other in a slot (`real.net.memory`).

    Args:
        sizes: number of elements and dtype of each buffer.

    Attributes:
        slot: None if there is none; the buffers then lie in memory of this process.
        why_not: why there is no slot; empty if there is one, or if this system never has any.
        tensors: the buffers, uninitialized.
    """

    def __init__(self, sizes: Sequence[tuple[int, torch.dtype]]) -> None:
        self._sizes = list(sizes)
        self.nbytes = sum(_aligned(elements * dtype.itemsize) for elements, dtype in sizes)
        self.slot: OwnSlot | None = None
        self.why_not = why_no_memory(self.nbytes) or why_no_files() if is_available() else ""
        if is_available() and not self.why_not:
            try:
                self.slot = OwnSlot(0, self.nbytes, is_read=False)
            except OSError as error:
                self.why_not = error.strerror or str(error)
        if self.slot is None:
            self.tensors = [
                torch.empty(elements, dtype=dtype, device="cpu") for elements, dtype in sizes
            ]
        else:
            weakref.finalize(self, self.slot.close).atexit = False
            self.tensors = self.views(self.slot.view(self.nbytes, torch.uint8))

    def views(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Return such buffers in other memory of `nbytes` bytes."""
        found, start = [], 0
        for elements, dtype in self._sizes:
            size = elements * dtype.itemsize
            found.append(memory[start : start + size].view(dtype))
            start += _aligned(size)
        return found


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED
