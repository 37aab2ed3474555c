"""Paths in a configuration are seen from the folder of its file."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any


@typing.runtime_checkable
class NamesFiles(typing.Protocol):
    """A part of a configuration with paths in it."""

    def absolute(self, folder: Path) -> typing.Self:
        """The same with its paths seen from `folder`."""


def with_paths(part: Any, folder: Path) -> Any:
    """A part, or a tuple of parts, with its paths, if it has any, seen from `folder`."""
    if isinstance(part, tuple):
        return tuple(with_paths(each, folder) for each in part)
    return part.absolute(folder) if isinstance(part, NamesFiles) else part
