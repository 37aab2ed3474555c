"""Files that are either complete or absent."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

PARTIAL: Final = ".part"


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then rename that file to `path` in one step."""
    partial = partial_of(path)
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def partial_of(path: Path) -> Path:
    """Make an empty file in the folder of `path`, to be renamed to it; return its path.

    The name is random, so that nobody can have put a link to another file in its place. Raises
    OSError.
    """
    partial = path.with_name(f"{path.name[:200]}.{secrets.token_hex(6)}{PARTIAL}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    os.close(os.open(partial, flags, 0o666))
    return partial


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
