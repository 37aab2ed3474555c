"""Removes socket files that were left because all processes of a run were killed at once.

Else the process that starts a fork server removes its socket file, or the fork server does when it
loses that process (`left_behind`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_SOCKETS: Final = Path("/proc/net/unix")  # lines end with a path


@cache
def remove_stale_sockets() -> None:
    """Remove socket files of this user's fork servers that have ended. Once; Linux only."""
    with contextlib.suppress(OSError):
        found = Path(tempfile.gettempdir()).glob("pymp-*/listener-*")  # as multiprocessing names it
        bound = _SOCKETS.read_text().splitlines()
        for path in found:
            with contextlib.suppress(OSError):  # another process has removed it
                is_bound = any(line.endswith(f" {path}") for line in bound)
                if not is_bound and _is_mine(path) and _is_refused(path):
                    path.unlink()
                    path.parent.rmdir()


def _is_mine(path: Path) -> bool:
    return path.is_socket() and path.stat().st_uid == os.getuid()


def _is_refused(path: Path) -> bool:
    """True if no process listens, in a container with the same temporary folder for example."""
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False
