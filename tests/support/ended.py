"""Checks whether a process has ended."""

from __future__ import annotations

import time

from tests.kills.command import is_alive


def gone(pid: int) -> bool:
    """Wait for some time; return True if the process has ended."""
    deadline = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)
