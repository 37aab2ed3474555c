"""Maps files in memory without keeping their descriptors. Linux only.

Python's mmap keeps a second descriptor for each mapping. Each block that is read is a mapping, so
blocks would use up the descriptors of a process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import cache
from typing import Any, Final, TypeAlias

Memory: TypeAlias = Any  # bytes that can be written to, with the buffer protocol

_READ_WRITE: Final = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED: Final = ctypes.c_void_p(-1).value


def mapped(descriptor: int, nbytes: int, *, is_private: bool) -> Memory:
    """Return the first bytes of a file as memory, which is unmapped when nothing uses it any more.

    Args:
        is_private: a page that is written to becomes a copy of this process.

    Raises:
        OSError: the system refuses it.
    """
    flags = mmap.MAP_PRIVATE if is_private else mmap.MAP_SHARED
    system = _system()
    address = system.mmap(None, nbytes, _READ_WRITE, flags, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_ubyte * nbytes).from_address(address)
    weakref.finalize(memory, system.munmap, address, nbytes).atexit = False
    return memory


@cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    system.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return system
