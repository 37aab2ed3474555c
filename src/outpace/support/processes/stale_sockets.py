"""Removes socket files that were left because all processes of a run were killed at once.

Else the process that starts a fork server removes its socket file, or the fork server does when it
loses that process (`left_behind`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from functools import cache
from pathlib import Path


@cache
def remove_stale_sockets() -> None:
    """Remove socket files of this user's fork servers that have ended. Once; Linux only."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        # The names are those that multiprocessing gives.
        for path in Path(tempfile.gettempdir()).glob("pymp-*/listener-*"):
            with contextlib.suppress(OSError):  # another process has removed it
                if _is_mine(path) and _is_dead(path):
                    path.unlink()
                    path.parent.rmdir()


def _is_mine(path: Path) -> bool:
    return path.is_socket() and path.stat().st_uid == os.getuid()


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
