"""Files in memory that processes of one machine share. Linux only.

Such a file is made with `memfd_create`. It has no name, so nothing is left behind when its
processes are killed. Its size is sealed: no process can shorten it while another one reads it. A
file that others only read is sealed so that only the process that made it can write
(F_SEAL_FUTURE_WRITE).

Another process opens the file as `/proc/PID/fd/NUMBER`, which the kernel allows to processes of the
same user only. The file begins with a random token, which was sent over the authenticated
connection: a number that means another file, in another container or because of a lie, is found
out by it.

A mapping needs no file descriptor, but Python's mmap keeps one for each, and each block that is
read is a mapping. So the C function is called.
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

Memory: TypeAlias = Any  # bytes that can be written to, with the buffer protocol

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
    """True if this system has such memory."""
    return hasattr(os, "memfd_create") and boot_id() != ""


def new_file(nbytes: int, *, is_read: bool) -> tuple[int, Memory, str]:
    """Return the descriptor of a new file, its memory, and the token with which it begins.

    It takes memory only where it is written to.

    Args:
        is_read: only this process can write to it.

    Raises:
        OSError: there is no memory or file descriptor for it.
    """
    descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, nbytes)
        os.posix_fallocate(descriptor, 0, PAGE)
        memory = mapped(descriptor, nbytes, is_private=False)
        # After the mapping, which stays writable.
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
        OSError: this process cannot get it, or it is not the file that has this size and token.
    """
    path = f"/proc/{pid}/fd/{number}"
    try:
        # Before it is opened: to open a device or a pipe may have effects.
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
    """Return bytes of a file as memory, which is unmapped when nothing uses it any more.

    Args:
        start: the first of them, a multiple of PAGE.
        is_private: a page that is written to becomes a copy of this process.

    Raises:
        OSError: the system refuses it.
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
    """Return the bytes of whole pages."""
    return -(-nbytes // PAGE) * PAGE
