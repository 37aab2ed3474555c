"""Measures the private memory of a process and the free memory of the machine. Linux only."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_INFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def own_bytes(pid: int) -> int | None:
    """Return the memory that a process shares with no other; None if it is unknown."""
    found = _fields(Path(f"/proc/{pid}/smaps_rollup"), "Private_Clean:", "Private_Dirty:")
    return sum(found) if found else None


def free_bytes() -> int | None:
    """Return the memory that processes can still allocate; None if it is unknown."""
    found = _fields(_INFO, "MemAvailable:")
    try:  # the limit of a container
        most = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        cached = _fields(_CGROUP / "memory.stat", "inactive_file", scale=1)
        found.append(most - used + sum(cached))
    except (OSError, ValueError):  # there is no limit ("max"), or no such file
        pass
    return max(0, min(found)) if found else None


def _fields(path: Path, *names: str, scale: int = 1024) -> list[int]:
    """Return the numbers behind these names in a file, times scale, for the names that it has."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return [int(field[1]) * scale for field in fields if len(field) > 1 and field[0] in names]
