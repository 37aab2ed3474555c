"""Removes what a process leaves behind on a machine, however it ends."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import Final

# Waits for the end of the process that holds its input, kills processes with the folder in their
# command, such as Ray's agents, and removes it. In a process that is no child of that one: Ray
# kills the children of an actor that ends. Its own command does not have the folder.
_LATER: Final = (
    "exec 3<&0; (cat <&3 >/dev/null; sleep 2; for each in /proc/[0-9]*; do "
    'grep -qsF -- "$FOLDER" "$each/cmdline" && kill -9 "${each#/proc/}"; done; '
    'rm -rf -- "$FOLDER") & exit 0'
)


class PassingFolder:
    """A folder for this user alone (mode 0700), which is gone some seconds after this process."""

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
        """Remove the folder, and what still uses it, in some seconds."""
        assert self._remover.stdin is not None
        self._remover.stdin.close()
