"""Slots: parts of a file in memory, each of which holds one block at a time.

There are two kinds:

- *Read* slots are for the parameters that a server sends. All its workers use them, so one copy is
  enough for all workers that get the same block. A receiver maps a slot again for each block, as
  private memory: a page that the receiver writes becomes its private copy.
- *Given* slots are for the gradients that a worker sends to one server. Both processes write to
  them, in turns: the server may add other gradients in place.

A slot is free again when all receivers have reported that they do not need its block any more, and
no tensor of this process uses it. No process waits for a slot.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Final

import torch

from outpace.blocks.block import Pieces
from outpace.real.memory.mapping import (
    PAGE,
    Memory,
    in_pages,
    is_available,
    mapped,
    new_file,
    opened,
)
from outpace.real.net.messages import OfferMemory
from outpace.real.net.wire import WireError
from outpace.support.machine import boot_id
from outpace.support.memory import free_bytes

LEAST_BYTES: Final = 1 << 17  # smaller blocks are sent over the network, which is faster for them
_SHARE: Final = 4  # a slot takes at most a quarter of the free memory


class OwnSlots:
    """Slots for the blocks that this process sends.

    Args:
        slots: number of slots.
        nbytes: size of each slot.
        is_read: True: other processes only read them.

    Raises:
        OSError: if there is no memory or file descriptor for them.
    """

    def __init__(self, slots: int, nbytes: int, *, is_read: bool) -> None:
        self._nbytes = nbytes
        self._stride, size = in_pages(nbytes), _file_bytes(slots, nbytes)
        self._descriptor, self._memory, token = new_file(size, is_read=is_read)
        here = os.getpid(), self._descriptor, token, boot_id()
        self.offer = OfferMemory(*here, slots, nbytes, is_read)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        # readers that need the block in each slot
        self._readers = [set[object]() for _ in range(slots)]
        self._contents: list[weakref.ref[torch.Tensor | Pieces] | None] = [None] * slots
        self._taken: set[int] = set()  # slots that have memory

    def place(self, block: torch.Tensor | Pieces, reader: object) -> int | None:
        """Return the slot in which this block is sent to a reader; None: in no slot.

        The block is copied to a slot unless one has it already.
        """
        slot = self._known(block)
        # Readers are not counted: a reader that needs the slot for an earlier message would free it
        # for both messages.
        if slot is None or reader in self._readers[slot]:
            slot = self._free(block.nbytes)
            if slot is None:
                return None
            start = self._start(slot)
            view = self._bytes[start : start + block.nbytes].view(block.dtype)
            if isinstance(block, Pieces):
                block.copy_to(view)
            else:
                view.copy_(block.detach())
            # A reader that may write changes the copy, so no other reader can use it.
            self._contents[slot] = weakref.ref(block) if self.offer.is_read else None
        self._readers[slot].add(reader)
        return slot

    def freed(self, slot: int, reader: object) -> None:
        """Note that a reader does not need the block in a slot any more.

        Raises:
            WireError: if the reader has no block there.
        """
        if slot >= len(self._readers) or reader not in self._readers[slot]:
            raise WireError(f"it frees slot {slot}, in which it has no block")
        self._readers[slot].remove(reader)

    def leave(self, reader: object) -> None:
        """Note that a reader has ended and needs no block any more."""
        for readers in self._readers:
            readers.discard(reader)

    def close(self) -> None:
        """Close the descriptor. Tensors and processes that use the memory keep it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _start(self, slot: int) -> int:
        return PAGE + slot * self._stride

    def _known(self, block: torch.Tensor | Pieces) -> int | None:
        """Return the slot that contains a copy of the block; None if there is no such slot."""
        for slot, content in enumerate(self._contents):
            if content is not None and content() is block:
                return slot
        return None

    def _free(self, nbytes: int) -> int | None:
        """Return a free slot for this number of bytes, if possible a slot that was used before."""
        if not LEAST_BYTES <= nbytes <= self._nbytes or self._descriptor < 0:
            return None
        for slot, readers in enumerate(self._readers):
            if not readers and self._has_memory(slot):
                self._contents[slot] = None
                return slot
        return None

    def _has_memory(self, slot: int) -> bool:
        """True if a slot has memory; it gets memory at its first use."""
        if slot not in self._taken:
            free = free_bytes()
            if free is not None and _SHARE * self._stride > free:
                return False
            try:  # otherwise a lack of memory would end the process when it writes
                os.posix_fallocate(self._descriptor, self._start(slot), self._stride)
            except OSError:
                return False
            self._taken.add(slot)
        return True


def new_slots(
    slots: int, nbytes: int, note: Callable[[str], None], *, is_read: bool
) -> OwnSlots | None:
    """Return slots for blocks of this size; None: such blocks are sent over the network.

    Args:
        note: called with the reason, unless the reason is an expected one.
    """
    if nbytes < LEAST_BYTES or not is_available():
        return None
    try:
        return OwnSlots(slots, nbytes, is_read=is_read)
    except OSError as error:
        note(f"blocks go over the network: {error.strerror or error}")
        return None


class PeerSlots:
    """Slots of another process.

    Raises:
        OSError: if this process cannot open them, or if they differ from the offer.
    """

    def __init__(self, offer: OfferMemory) -> None:
        self._nbytes, self._slots, self.is_read = offer.nbytes, offer.slots, offer.is_read
        self._stride, size = in_pages(offer.nbytes), _file_bytes(offer.slots, offer.nbytes)
        self._descriptor = opened(offer.pid, offer.descriptor, size, offer.token)
        close = weakref.finalize(self, os.close, self._descriptor)
        self._memory: Memory = None  # mapped memory of given slots
        if not offer.is_read:
            self._memory = mapped(self._descriptor, size, is_private=False)
            close()  # the mapping needs no descriptor

    def block(
        self, slot: int, elements: int, dtype: torch.dtype, when_gone: Callable[[], object]
    ) -> torch.Tensor:
        """Return the block in a slot; the caller may write to it.

        when_gone: called, in any thread, when no tensor uses it any more.

        Raises:
            WireError: if there is no such slot, or if the block does not fit or cannot be mapped.
        """
        nbytes, start = elements * dtype.itemsize, PAGE + slot * self._stride
        if slot >= self._slots or nbytes > self._nbytes:
            raise WireError(f"a block of {nbytes} bytes cannot be in slot {slot}")
        if not self.is_read:
            return lent(self._memory, start, elements, dtype, when_gone)
        try:
            memory = mapped(self._descriptor, self._stride, start=start, is_private=True)
        except OSError as error:
            raise WireError(f"slot {slot} cannot be read: {error.strerror}") from None
        return lent(memory, 0, elements, dtype, when_gone)


def lent(
    memory: Memory,
    start: int,
    elements: int,
    dtype: torch.dtype,
    when_gone: Callable[[], object],
) -> torch.Tensor:
    """Return memory as a tensor. when_gone: called when no tensor uses it any more."""
    view = memoryview(memory)[start : start + elements * dtype.itemsize]
    weakref.finalize(view, when_gone).atexit = False
    return torch.frombuffer(view, dtype=dtype)  # keeps the view alive


def _file_bytes(slots: int, nbytes: int) -> int:
    return PAGE + slots * in_pages(nbytes)
