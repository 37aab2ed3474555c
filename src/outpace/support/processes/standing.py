"""Reads from /proc whether a process is stopped or ending. Linux only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_PF_EXITING: Final = 0x4  # flag of a process


def fields_of(process: int | str) -> tuple[str, list[str]]:
    """Return the name of a process and the fields of its `stat`, from the state on.

    Raises OSError if there is no such process, or this is not Linux.
    """
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    begin, _, rest = stat.rpartition(")")  # the name before it may contain spaces
    return begin.partition("(")[2], rest.split()


def is_stopped(process: int) -> bool:
    """True if a process is known to be stopped by a signal, for example after Ctrl-Z."""
    try:
        _, fields = fields_of(process)
    except OSError:
        return False
    return fields[0] in ("T", "t")


def is_ending(process: int) -> bool:
    """True if a process has ended or is about to, even if its end is not reported yet.

    The kernel marks a process before it closes the process's sockets. So if the end of a process
    has closed a connection, the process is marked. The result is False if this cannot be known.
    """
    if sys.platform != "linux":
        return False
    try:
        _, fields = fields_of(process)
    except OSError:
        return True
    return fields[0] in ("Z", "X") or bool(int(fields[6]) & _PF_EXITING)
