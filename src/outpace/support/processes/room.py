"""Checks, before any process of a run is started, whether this computer has room for all."""

from __future__ import annotations

import os
import tempfile
from typing import Final

from outpace.errors import ConfigError

_SOCKET_PATH: Final = 107  # longest path of a Unix socket in bytes; the 108th ends it
_SOCKET_NAME: Final = len("/pymp-12345678/listener-12345678")  # length that multiprocessing adds
_FILES: Final = 64  # descriptors of a process before it starts others
# descriptors for each process: output, error, two of multiprocessing, a connection
_FILES_EACH: Final = 5


def require_room(processes: int, connections: int = 0, connections_each: int = 1) -> None:
    """Raise ConfigError if this computer cannot start this number of processes.

    Args:
        processes: number of processes that this one starts.
        connections: number of processes started elsewhere that connect to this one.
        connections_each: number of connections that each process has to this one.
    """
    require_short_temporary_folder()
    _require_files(processes, connections, connections_each - 1)


def require_short_temporary_folder() -> None:
    """Raise ConfigError if sockets in the folder for temporary files would have too long names."""
    folder = tempfile.gettempdir()
    most = _SOCKET_PATH - _SOCKET_NAME
    if len(os.fsencode(folder)) > most:
        raise ConfigError(
            f"TMPDIR: {folder} has {len(os.fsencode(folder))} characters, and sockets in it can "
            f"only be made with at most {most}: set TMPDIR to a folder with a shorter name"
        )


def _require_files(processes: int, connections: int, more_each: int) -> None:
    try:
        import resource
    except ImportError:  # not Unix
        return
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + (_FILES_EACH + more_each) * processes + (1 + more_each) * connections
    if most != resource.RLIM_INFINITY and most < needed:
        raise ConfigError(
            f"a process may have {most} open files here, and a run with {processes + connections} "
            f"processes needs {needed}: raise the limit with `ulimit -n {needed}`, or have fewer "
            "workers or servers"
        )
