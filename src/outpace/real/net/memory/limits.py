"""How much memory and how many file descriptors slots may use."""

from __future__ import annotations

import os
from typing import Final

from outpace.support.memory import free_bytes

_MEMORY_SHARE: Final = 4  # a slot takes at most a quarter of the memory that is free
_FILES_SHARE: Final = 2  # there are no more slots once half of the descriptors are used


def why_no_memory(nbytes: int) -> str:
    """Return why a slot of so many bytes should not be made; empty if it may be."""
    free = free_bytes()
    return "little memory is free" if free is not None and _MEMORY_SHARE * nbytes > free else ""


def why_no_files() -> str:
    """Return why this process should have no more slots; empty if it may."""
    import resource  # not on all systems that can import this module

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError as error:
        return error.strerror or str(error)
    if most == resource.RLIM_INFINITY or _FILES_SHARE * used <= most:
        return ""
    return f"half of the {most} files that a process may open are open: raise `ulimit -n`"
