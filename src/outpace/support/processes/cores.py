"""Measures how busy the cores of this machine are, with this process and without it.

/proc (Linux) has the processor time of all cores, and the processor time of this process and its
descendants, including ended processes that they have waited for.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Final

from outpace.support.processes.standing import fields_of

# number of entries of /proc/stat that are added; the first two contain the guests
_STEAL: Final = 8
_IDLE: Final = slice(3, 5)  # places of idle time and of waiting for disks


class CoresUsed:
    """Measures the use of the cores from its construction on."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._whole = _whole()
        self._own = _own(os.getpid())

    def data(self) -> dict[str, Any] | None:
        """Return `cores`, and how many of them were busy on average since the construction.

        `busy` counts all processes, `others` only those that are not descendants of this process.

        Returns:
            The numbers by name; None if they are not known.
        """
        whole, own, took_s = _whole(), _own(os.getpid()), time.monotonic() - self._started_s
        cores = os.cpu_count()
        if whole is None or own is None or self._whole is None or self._own is None:
            return None
        if took_s <= 0:
            return None
        per_s = 1 / (os.sysconf("SC_CLK_TCK") * took_s)
        busy = (whole - self._whole) * per_s
        others = busy - (own - self._own) * per_s
        if busy <= 0:  # not counted here
            return None
        return {"cores": cores, "busy": round(busy, 2), "others": round(max(0.0, others), 2)}


def _whole() -> int | None:
    """Return the processor time of all processes, in ticks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        counts = [int(each) for each in first[1 : 1 + _STEAL]]
        return sum(counts) - sum(counts[_IDLE])
    return None


def _own(root: int) -> int | None:
    """Return the processor time of a process and its descendants, in ticks."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                _, entries = fields_of(folder.name)
                pid = int(folder.name)
                parents[pid] = int(entries[1])
                ticks[pid] = sum(int(each) for each in entries[11:15])
    if root not in ticks:
        return None
    total = 0
    for pid, each in ticks.items():
        at: int | None = pid
        while at is not None and at != root:
            at = parents.get(at)
        total += each if at == root else 0
    return total
