"""Removes the files and processes that a process leaves behind, for any kind of its end."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import Final

# It waits for the end of the process that holds its input, kills processes with the folder in their
# command, such as Ray's agents, and removes the folder. It is not a child of that process, because
# Ray kills the children of an actor that ends. Its own command does not contain the folder.
_LATER: Final = (
    "exec 3<&0; (cat <&3 >/dev/null; sleep 2; for each in /proc/[0-9]*; do "
    'grep -qsF -- "$FOLDER" "$each/cmdline" && kill -9 "${each#/proc/}"; done; '
    'rm -rf -- "$FOLDER") & exit 0'
)


class PassingFolder:
    """A folder for this user alone (mode 0700), removed some seconds after this process ends."""

    def __init__(self, prefix: str) -> None:
        self.path = tempfile.mkdtemp(prefix=prefix)
        self._remover = subprocess.Popen(
            ["sh", "-c", _LATER],
            env={**os.environ, "FOLDER": self.path},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._remover.wait()

    def close(self) -> None:
        """Remove the folder, and the processes that use it, within some seconds."""
        assert self._remover.stdin is not None
        self._remover.stdin.close()
