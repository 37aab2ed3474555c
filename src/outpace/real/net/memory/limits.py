"""How many file descriptors shared memory may use. Connections and files need the others."""

from __future__ import annotations

import os
from typing import Final

_SHARE: Final = 2  # there are no more slots once half of the descriptors are used


def why_no_files() -> str:
    """Return why this process should have no more slots; empty if it may."""
    import resource  # not on all systems that can import this module

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError as error:
        return error.strerror or str(error)
    if most == resource.RLIM_INFINITY or _SHARE * used <= most:
        return ""
    return f"half of the {most} files that a process may open are open: raise `ulimit -n`"
