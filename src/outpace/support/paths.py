"""Resolves the paths in a configuration, which are relative to the folder of its file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from outpace.support.place import ELSEWHERE


def absolute_path(path: str, folder: Path) -> str:
    """Return the absolute path, resolved against `folder`; `~` is the home folder."""
    return path if path == ELSEWHERE else str((folder / Path(path).expanduser()).resolve())


def absolute_targets(targets: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Return several targets as `absolute_target` does."""
    return tuple(absolute_target(each, folder) for each in targets)


def absolute_target(target: str, folder: Path) -> str:
    """Return the target with an absolute path of its file, resolved against `folder`."""
    where, _, name = target.rpartition(":")
    return f"{(folder / where).resolve()}:{name}" if where.endswith(".py") else target


_RESOLVE: Final = "resolve"
# The metadata of fields of a configuration that name a file, or a function in the user's code.
FILE: Final[Mapping[str, Callable[[str, Path], str]]] = {_RESOLVE: absolute_path}
TARGET: Final[Mapping[str, Callable[[str, Path], str]]] = {_RESOLVE: absolute_target}
TARGETS: Final[Mapping[str, Any]] = {_RESOLVE: absolute_targets}


def with_paths(part: Any, folder: Path) -> Any:
    """Return a dataclass of a configuration, or a tuple of dataclasses, with absolute paths.

    Args:
        folder: the folder that relative paths are resolved against.
    """
    if isinstance(part, tuple):
        return tuple(with_paths(each, folder) for each in part)
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    changes = {}
    for entry in dataclasses.fields(part):
        value = getattr(part, entry.name)
        resolve = entry.metadata.get(_RESOLVE, with_paths)
        made = None if value is None else resolve(value, folder)
        if made != value:
            changes[entry.name] = made
    return dataclasses.replace(part, **changes) if changes else part
