"""Whether a process has ended."""

from __future__ import annotations

import time
from pathlib import Path


def gone(pid: int) -> bool:
    """True when a process has ended, if need be after some time."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":  # it waits for whoever started it
            return True
        time.sleep(0.01)
    return False
