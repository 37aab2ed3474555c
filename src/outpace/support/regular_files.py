"""Opens regular files only.

A folder of a run may come from an untrusted source. A link in it could lead to any file of the
user, and reading a named pipe or a device may never end. So files in such a folder are opened with
the opener `inside`, which does not follow links; files that a user names are opened with `named`,
which follows links. Both refuse everything except regular files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from outpace.errors import ConfigError

Opener: TypeAlias = Callable[[str, int], int]

_MOST_TEXT: Final = 1 << 28  # letters: far more than any text that Outpace writes
_LINK: Final = "it is a symbolic link, and in a folder that Outpace made there are none"
_OTHER: Final = "it is not a regular file"


def inside(path: str, flags: int) -> int:
    """Open a file in a folder that Outpace made. Raises OSError if it is a link, or not regular."""
    try:
        return named(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, _LINK, path) from None
        raise


def named(path: str, flags: int) -> int:
    """Open a file that a user names. Raises OSError if it is not regular."""
    # A named pipe would wait for its other end.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, _OTHER, path)


def regular(path: Path, opener: Opener = inside) -> Path:
    """Return a file's path for a library that opens it itself. Raises OSError if not regular."""
    os.close(opener(str(path), os.O_RDONLY))
    return path


def require_no_link(folder: Path) -> None:
    """Raise ConfigError if a folder within a folder that Outpace made is a link."""
    if folder.is_symlink():
        raise ConfigError(f"{folder}: {_LINK}: nothing was read or written; remove it")


def read_text(path: Path, opener: Opener = inside) -> str:
    """Return the content of a file. Raises OSError, and UnicodeDecodeError."""
    with open(path, encoding="utf-8", opener=opener) as file:
        content = file.read(_MOST_TEXT + 1)
    if len(content) > _MOST_TEXT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content
