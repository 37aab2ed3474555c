"""Removes the socket file of the fork server when the process that started it was killed.

multiprocessing gives the fork server a socket in a folder of its own, which the starter removes
when it ends. A starter that is killed by SIGKILL cannot. (Sockets without a file would be open to
every user of the computer, who could have any code run: CVE-2022-42919.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path
from types import FrameType

from outpace.support.processes.forking import die_with_parent
from outpace.support.processes.stale_sockets import mark, remove_socket


def end_with_starter() -> None:
    """End this process, the fork server, when its starter dies, and remove the socket file.

    By SIGTERM, which the kernel sends then. If it comes from elsewhere, as when a cluster sends it
    to all processes of a job, it has no effect: the starter ends the run in order. Linux only.
    """
    server, starter, path = os.getpid(), os.getppid(), _listening_at()
    if path is not None:
        mark(path, os.getppid())

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != server:  # a new process, which has not set up its own handler yet
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if os.getppid() == starter:
            return
        if path is not None:
            with contextlib.suppress(OSError):  # the starter has removed it
                remove_socket(path)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(signal.SIGTERM)


def _listening_at() -> Path | None:
    """Return the path of the Unix socket at which this process listens; None if there is none."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if found.family != socket.AF_UNIX or not listens:
                    continue
                address = found.getsockname()  # bytes if it has no file
                if isinstance(address, str) and address:
                    return Path(address)
    return None
