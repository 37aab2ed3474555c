"""Memory that a process shares with others of its machine, one piece (a slot) at a time.

A slot is an anonymous file in memory (`memfd_create`). It has no name, so nothing is left behind
when its processes are killed. Its size is sealed: no process can shorten it while another one
reads it.

There are two kinds of slots:

- A *read* slot has parameters that a server sends to several workers. It is sealed so that only the
  process that made it can write (F_SEAL_FUTURE_WRITE). A receiver maps it anew for each block, with
  MAP_PRIVATE: a page that the receiver writes becomes a copy of its own.
- A *given* slot has a gradient that a worker sends to one server. Both processes write to it, in
  turns: the server may add other gradients to it in place.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Final

import torch

from outpace.errors import ProtocolError
from outpace.real.net.memory.mapping import Memory, mapped

_SIZE_SEALS: Final = 0x0002 | 0x0004  # F_SEAL_SHRINK, F_SEAL_GROW: Python 3.11 names few of them
_SEAL_SEALS: Final = 0x0001
_SEAL_FUTURE_WRITE: Final = 0x0010
_ADD_SEALS: Final = 1033
_GET_SEALS: Final = 1034


def is_available() -> bool:
    """True if this system has such memory."""
    return hasattr(os, "memfd_create") and hasattr(mmap, "MAP_PRIVATE")


class OwnSlot:
    """A slot of this process, to be filled with one block at a time.

    Args:
        is_read: others only read it, any number of them; otherwise it is given to one process.

    Raises:
        OSError: there is no memory or file descriptor for it, or the system has no such memory.
    """

    def __init__(self, number: int, nbytes: int, *, is_read: bool) -> None:
        self.number, self.nbytes, self.is_read = number, nbytes, is_read
        self.descriptor = os.memfd_create("outpace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Without it, a lack of memory would end the process at a later write.
            os.posix_fallocate(self.descriptor, 0, nbytes)
            self._memory = mapped(self.descriptor, nbytes, is_private=False)
            # After the mapping, which stays writable.
            seals = _SIZE_SEALS | _SEAL_SEALS | (_SEAL_FUTURE_WRITE if is_read else 0)
            fcntl.fcntl(self.descriptor, _ADD_SEALS, seals)
        except OSError:
            os.close(self.descriptor)
            raise
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self.address = self._bytes.data_ptr()

    def view(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the first elements of the slot."""
        return self._bytes[: elements * dtype.itemsize].view(dtype)

    def lend(
        self, elements: int, dtype: torch.dtype, when_gone: Callable[[], object]
    ) -> torch.Tensor:
        """Return the first elements as a tensor.

        when_gone: called, in any thread, when no tensor uses these elements any more.
        """
        return _lent(self._memory, elements, dtype, when_gone)

    def close(self) -> None:
        """Close the descriptor. Tensors and processes that have the memory keep it."""
        os.close(self.descriptor)


class GotSlot:
    """A slot of another process. The descriptor is closed when this object is deleted.

    Raises:
        ProtocolError: the slot is not what was offered, or its size is not sealed.
        OSError: a given slot cannot be mapped.
    """

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self._descriptor, self._nbytes = descriptor, nbytes
        close = weakref.finalize(self, os.close, descriptor)
        self._shared: Memory | None = None
        try:
            seals = fcntl.fcntl(descriptor, _GET_SEALS)
            size = os.fstat(descriptor).st_size
        except OSError as error:
            raise ProtocolError(f"a slot is no memory to share: {error.strerror}") from None
        if seals & _SIZE_SEALS != _SIZE_SEALS:
            raise ProtocolError("the size of a slot is not sealed")
        if size != nbytes or nbytes == 0:
            raise ProtocolError(f"a slot has {size} bytes where {nbytes} were offered")
        if not seals & _SEAL_FUTURE_WRITE:
            self._shared = mapped(descriptor, nbytes, is_private=False)
            close()  # the mapping needs no descriptor

    @property
    def is_shared(self) -> bool:
        """True if its owner can write to it while this process uses it."""
        return self._shared is not None

    def lend(
        self, elements: int, dtype: torch.dtype, when_gone: Callable[[], object]
    ) -> torch.Tensor:
        """Return the first elements as a tensor, to which the caller may write.

        when_gone: called, in any thread, when no tensor uses these elements any more.

        If a read slot cannot be mapped, the elements are copied, and `when_gone` is called now.

        Raises:
            ProtocolError: the slot has fewer.
            OSError: the slot can be neither mapped nor read.
        """
        if elements * dtype.itemsize > self._nbytes:
            raise ProtocolError(
                f"{elements} elements of {dtype} do not fit in a slot of {self._nbytes} bytes"
            )
        memory = self._shared
        if memory is None:
            try:
                memory = mapped(self._descriptor, self._nbytes, is_private=True)
            except OSError:  # too little memory, or too many mappings
                copy = self._copy(elements, dtype)
                when_gone()
                return copy
        return _lent(memory, elements, dtype, when_gone)

    def _copy(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        memory = bytearray(elements * dtype.itemsize)
        done = 0
        while done < len(memory):
            read = os.preadv(self._descriptor, [memoryview(memory)[done:]], done)
            if not read:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            done += read
        return torch.frombuffer(memory, dtype=dtype)


def _lent(
    memory: Memory, elements: int, dtype: torch.dtype, when_gone: Callable[[], object]
) -> torch.Tensor:
    view = memoryview(memory)[: elements * dtype.itemsize]
    weakref.finalize(view, when_gone).atexit = False
    return torch.frombuffer(view, dtype=dtype)  # keeps the view
