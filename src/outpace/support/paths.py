"""Resolves the paths in a configuration, which are relative to the folder of its file."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any


@typing.runtime_checkable
class NamesFiles(typing.Protocol):
    """A part of a configuration with paths in it."""

    def absolute(self, folder: Path) -> typing.Self:
        """Return the part with absolute paths; relative paths are resolved against `folder`."""


def with_paths(part: Any, folder: Path) -> Any:
    """Return a part, or a tuple of parts, with absolute paths."""
    if isinstance(part, tuple):
        return tuple(with_paths(each, folder) for each in part)
    return part.absolute(folder) if isinstance(part, NamesFiles) else part


def seen_from(folder: Path, path: str | None) -> str | None:
    """Return the absolute path, resolved against `folder`; `~` is the home folder."""
    return None if path is None else str((folder / Path(path).expanduser()).resolve())
