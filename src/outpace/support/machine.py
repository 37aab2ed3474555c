"""Facts about this process's machine, which the process tells the coordinator when it joins."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path
from typing import Final

LONGEST: Final = 64  # characters of a host name in a message; Linux allows no more
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")


@cache
def boot_id() -> str:
    """Return an id that is equal in processes with the same monotonic clock; empty if unknown."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def machine_id() -> str:
    """Return an id that is equal in processes with the same network interfaces; empty if unknown.

    A container or a network namespace with separate interfaces counts as a machine.
    """
    boot = boot_id()
    try:
        return f"{boot}/{_NETWORK.stat().st_ino}" if boot else ""
    except OSError:
        return ""


def host_name() -> str:
    """Return the host name, cut to the length that a message allows."""
    return socket.gethostname()[:LONGEST].encode("utf-8", "replace").decode()
