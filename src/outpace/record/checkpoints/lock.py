"""The lock of a run's folder: at most one process at a time runs in the folder."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from outpace.errors import ConfigError
from outpace.support.regular_files import inside

LOCK: Final = "run.lock"
_TRIES: Final = 5
_TRY_AGAIN_S: Final = 0.01


class RunLock:
    """Holds the lock of a folder until `release`, or until this process ends in any way.

    The file names the process that holds the lock. It is not removed, because another process may
    have opened it already.

    Args:
        run: the folder of the run, which exists.
        remove: True to remove the file at `release`, if no other process can want the lock.

    Raises:
        ConfigError: if a process holds the lock, or the file cannot be written.
    """

    def __init__(self, run: Path, *, remove: bool = False) -> None:
        path = run / LOCK
        self._removed = path if remove else None
        try:
            self._file = open(path, "a+", encoding="utf-8", opener=inside)  # noqa: SIM115  until `release`
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
        try:
            _lock(self._file)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise ConfigError(
                f"{run}: this run is running ({holder or 'in another process'}); stop it first"
            ) from error
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        self._file.flush()

    def release(self) -> None:
        """Release the lock for other processes. Idempotent."""
        if not self._file.closed:
            if self._removed is not None:
                self._removed.unlink(missing_ok=True)
            # also in processes that were forked in the meantime
            fcntl.flock(self._file, fcntl.LOCK_UN)
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


def holder(run: Path) -> str | None:
    """Return a text about the process that holds the lock of this folder; None if none does.

    Raises OSError if the file exists but cannot be read.
    """
    try:
        with open(run / LOCK, encoding="utf-8", opener=inside) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "another process"
            fcntl.flock(file, fcntl.LOCK_UN)
    except FileNotFoundError:
        pass
    return None


def _lock(file: IO[str]) -> None:
    """Lock the file, also if `holder` has locked it briefly; raise OSError if a run has it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_TRY_AGAIN_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
