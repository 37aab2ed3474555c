"""Files in memory that processes of one machine share. Linux only.

Such a file is made with `memfd_create`. It has no name, so nothing is left behind when its
processes are killed. Its size is sealed: no process can shorten it while another process reads it.
A file that other processes only read is sealed so that only its creator can write to it
(F_SEAL_FUTURE_WRITE).

Another process opens the file as `/proc/PID/fd/NUMBER`, which the kernel allows only to processes
of the same user. The file begins with a random token, which was also sent over the authenticated
connection. So it is detected if the number refers to another file, because of a container or a
false message.

A mapping needs no file descriptor, but Python's mmap keeps one for each mapping, and each block
that is read is a mapping. So the C function is called directly.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import secrets
import weakref
from functools import cache
from typing import Any, Final, TypeAlias

from outpace.support.machine import boot_id

Memory: TypeAlias = Any  # writable bytes with the buffer protocol

PAGE: Final = 4096
_NAME: Final = "outpace"
_TOKEN_BYTES: Final = 64
_SIZE_SEALS: Final = 0x0002 | 0x0004  # F_SEAL_SHRINK, F_SEAL_GROW: Python 3.11 names few of them
_SEAL_SEALS: Final = 0x0001
_SEAL_FUTURE_WRITE: Final = 0x0010
_ADD_SEALS: Final = 1033
_GET_SEALS: Final = 1034
_FAILED: Final = ctypes.c_void_p(-1).value


def is_available() -> bool:
    """True if this system supports files in memory that processes share."""
    return hasattr(os, "memfd_create") and boot_id() != ""


def new_file(nbytes: int, *, is_read: bool) -> tuple[int, Memory, str]:
    """Return the descriptor of a new file, its memory, and the token with which it begins.

    The file takes memory only for the pages that are written.

    Args:
        is_read: True: only this process can write to it.

    Raises:
        OSError: if there is no memory or file descriptor for it.
    """
    descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, nbytes)
        os.posix_fallocate(descriptor, 0, PAGE)
        memory = mapped(descriptor, nbytes, is_private=False)
        # This is done after the mapping, which remains writable.
        seals = _SIZE_SEALS | _SEAL_SEALS | (_SEAL_FUTURE_WRITE if is_read else 0)
        fcntl.fcntl(descriptor, _ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    token = secrets.token_hex(_TOKEN_BYTES // 2)
    memory[:_TOKEN_BYTES] = token.encode()
    return descriptor, memory, token


def opened(pid: int, number: int, nbytes: int, token: str) -> int:
    """Return a descriptor of the file that another process has under this number.

    Raises:
        OSError: if this process cannot open it, or if it does not have this size and token.
    """
    path = f"/proc/{pid}/fd/{number}"
    try:
        # This is checked before opening, because opening a device or a pipe may have effects.
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            raise FileNotFoundError
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError("another container or process namespace") from None
    try:
        if fcntl.fcntl(descriptor, _GET_SEALS) & _SIZE_SEALS != _SIZE_SEALS:
            raise OSError("the size of the memory is not sealed")
        if os.fstat(descriptor).st_size != nbytes:
            raise OSError("the memory has another size than was offered")
        found = os.pread(descriptor, _TOKEN_BYTES, 0)
        if not secrets.compare_digest(found, token.encode()):
            raise OSError("another container or process namespace")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def mapped(descriptor: int, nbytes: int, *, start: int = 0, is_private: bool) -> Memory:
    """Return bytes of a file as memory, which is unmapped when it is not used any more.

    Args:
        start: the first byte, a multiple of PAGE.
        is_private: True: a page that is written becomes a private copy of this process.

    Raises:
        OSError: if the system refuses it.
    """
    flags = mmap.MAP_PRIVATE if is_private else mmap.MAP_SHARED
    system, protection = _system(), mmap.PROT_READ | mmap.PROT_WRITE
    address = system.mmap(None, nbytes, protection, flags, descriptor, start)
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


def in_pages(nbytes: int) -> int:
    """Return a number of bytes rounded up to whole pages."""
    return -(-nbytes // PAGE) * PAGE
