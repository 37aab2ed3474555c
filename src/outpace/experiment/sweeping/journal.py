"""The journal file of a study: one sweep writes it at a time; what a killed one left is repaired.

Optuna locks its journal for each write with a symbolic link beside it, and waits 30 s before it
takes the link of a process that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from outpace.errors import ConfigError
from outpace.support.regular_files import inside

_WRITE_S: Final = 1.0  # optuna-dashboard may write, too: a write takes a millisecond


@contextlib.contextmanager
def own(path: Path, *, resume: bool) -> Iterator[None]:
    """Keep other sweeps away from the journal in this block; the end of the process frees it, too.

    Raises ConfigError if there is no journal to resume, or another sweep is at work on it.
    """
    if resume and not path.is_file():
        raise ConfigError(f"{path.parent} has no {path.name}: there is no study to resume")
    with open(path, "ab+", opener=inside) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another sweep is at work on {path}: wait until it ends, or choose another --out"
            ) from None
        _remove_lock(path.with_name(f"{path.name}.lock"))
        _remove_half_line(file)
        yield


def _remove_lock(lock: Path) -> None:
    """Remove the lock of a write that a killed process did not end."""
    with contextlib.suppress(FileNotFoundError):
        left = lock.lstat()
        time.sleep(min(_WRITE_S, max(0.0, left.st_mtime + _WRITE_S - time.time())))
        if lock.lstat().st_ino == left.st_ino:
            lock.unlink()


def _remove_half_line(file: BinaryIO) -> None:
    """Remove what a killed process wrote of its last line: the next one would be appended to it."""
    file.seek(0)
    whole = sum(len(line) for line in file if line.endswith(b"\n"))
    if whole < file.tell():
        file.truncate(whole)
