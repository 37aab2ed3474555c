"""The lock of a run's folder: at most one process at a time runs in it."""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from outpace.errors import ConfigError

LOCK: Final = "run.lock"


class RunLock:
    """Holds the lock of a folder until `release`, or the end of this process, however it ends.

    The file names the process that holds it. It is not removed, because another process may have
    opened it already.

    Args:
        run: the folder of the run, which exists.

    Raises:
        ConfigError: if a process holds the lock, or the file cannot be written.
    """

    def __init__(self, run: Path) -> None:
        path = run / LOCK
        try:
            self._file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise ConfigError(
                f"{run}: this run is going on ({holder or 'in another process'}); stop it first"
            ) from error
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        self._file.flush()

    def release(self) -> None:
        """Let other processes have the folder. Idempotent."""
        if not self._file.closed:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # also in processes that were forked meanwhile
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
