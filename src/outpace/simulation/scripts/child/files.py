"""Which files a script writes, so that a comparison can tell when variants overwrite them."""

from __future__ import annotations

import os
import sys
from functools import wraps
from pathlib import Path
from typing import Any, Final

import torch

_WRITES: Final = os.O_WRONLY | os.O_RDWR
_MOST: Final = 1000  # files
_SYSTEM: Final = ("/dev/", "/proc/", "/tmp/torch_", "/sys/")


class Written:
    """Collects the paths of files that this process opens to write to them."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._found)

    def watch(self) -> None:
        """Begin to collect; there is no end to it, as Python keeps audit hooks."""
        sys.addaudithook(self._audit)
        save = torch.save

        @wraps(save)
        def saving(thing: Any, file: Any, *arguments: Any, **options: Any) -> None:
            if isinstance(file, str | os.PathLike):  # torch opens it, unseen by Python
                self._add(os.fspath(file))
            save(thing, file, *arguments, **options)

        setattr(torch, "save", saving)  # noqa: B010  # it has another type for mypy

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = any(c in mode for c in "wax+") if isinstance(mode, str) else flags & _WRITES
            if writes and isinstance(path, str | bytes):
                self._add(os.fsdecode(path))

    def _add(self, path: str) -> None:
        whole = str(Path(path).absolute())
        if len(self._found) < _MOST and not whole.startswith(_SYSTEM) and "__pycache__" not in path:
            self._found.add(whole)
