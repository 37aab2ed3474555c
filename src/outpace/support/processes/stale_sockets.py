"""Removes socket files that were left because all processes of a run were killed at once.

Else the process that starts a fork server removes its socket file, or the fork server does when it
loses that process (`left_behind`).

The folder for temporary files may be one that several computers share. Whether a process has a
socket is known only to the computer that made it, so the fork server writes the present start of
its computer beside its socket, and only sockets of this start of this computer are removed. It also
writes its starter: one that lives, and has lost its fork server, needs the folder of the socket
for the next one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_MARK: Final = "outpace-boot-id"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def mark(socket_file: Path, starter: int) -> None:
    """Write beside the socket of a fork server where it is, and its starter. Linux only."""
    with contextlib.suppress(OSError):  # then it is not removed by others
        (socket_file.parent / _MARK).write_text(f"{_BOOT.read_text()}{starter}\n")


def remove_socket(socket_file: Path) -> None:
    """Remove the socket of a fork server that has ended. Raises OSError."""
    socket_file.unlink()
    (socket_file.parent / _MARK).unlink(missing_ok=True)
    socket_file.parent.rmdir()


@cache
def remove_stale_sockets() -> None:
    """Remove socket files of this user's fork servers that have ended. Once; Linux only."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        # The names are those that multiprocessing gives.
        for path in Path(tempfile.gettempdir()).glob("pymp-*/listener-*"):
            with contextlib.suppress(OSError):  # another process has removed it
                if _is_mine(path) and _is_left_here(path) and _is_dead(path):
                    remove_socket(path)


def _is_mine(path: Path) -> bool:
    return path.is_socket() and path.stat().st_uid == os.getuid()


def _is_left_here(path: Path) -> bool:
    """True if the socket was made since this computer has started, and its starter has ended."""
    boot, *starter = (path.parent / _MARK).read_text().split()
    if boot != _BOOT.read_text().strip() or len(starter) != 1:
        return False
    return not Path(f"/proc/{starter[0]}").exists()


def _is_dead(path: Path) -> bool:
    """True if no process has this socket, in a container with the same folder for example.

    A process that has it is not disturbed: the kernel refuses the call because the kinds of the
    sockets differ. A call of the same kind would be accepted, and its end would end a fork server.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
