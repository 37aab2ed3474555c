"""Finds which files a script writes.

So a run can tell whether its workers overwrite each other's files, and a comparison can tell it of
its variants. A script that is run only to measure its steps is ended before it writes.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

_WRITES: Final = os.O_WRONLY | os.O_RDWR
_MOST: Final = 1000  # files
_SYSTEM: Final = ("/dev/", "/proc/", "/sys/")


class Written:
    """Collects the paths of the files that this process opens for writing.

    Attributes:
        overwritten: the files that it has not only appended to.

    Args:
        on_write: called before a file is written, with its absolute path.
    """

    def __init__(self, on_write: Callable[[str], None] = lambda _: None) -> None:
        self._found: set[str] = set()
        self.overwritten: set[str] = set()
        self._on_write = on_write
        self._not_of_script = _caches()  # paths, or beginnings of paths
        # The hook exists longer than this module's names, which Python clears at the end of the
        # process.
        self._is_over = sys.is_finalizing

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._found)

    def watch(self) -> None:
        """Begin to collect paths, until the process ends: an audit hook cannot be removed."""
        sys.addaudithook(self._audit)
        # These functions open files without Python's audit events.
        self._watch_calls(torch, "save")
        self._watch_calls(torch.jit, "save")
        if importlib.util.find_spec("safetensors") is not None:
            for module in ("safetensors", "safetensors.torch", "safetensors.numpy"):
                self._watch_calls(importlib.import_module(module), "serialize_file")

    def _watch_calls(self, module: ModuleType, name: str) -> None:
        """Look at the second argument, a path, of each call of a function."""
        function = getattr(module, name)

        @wraps(function)
        def called(*arguments: Any, **options: Any) -> Any:
            file = arguments[1] if len(arguments) > 1 else None
            path = options.get("f", options.get("filename", file))
            if isinstance(path, str | os.PathLike):
                self._add(path)
            return function(*arguments, **options)

        setattr(module, name, called)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_over():
            return
        if event == "open":
            path, mode, flags = arguments
            writes = any(c in mode for c in "wax+") if isinstance(mode, str) else flags & _WRITES
            appends = "a" in mode if isinstance(mode, str) else bool(flags & os.O_APPEND)
            if writes:
                self._add(path, overwrites=not appends)
        elif event in ("tempfile.mkstemp", "tempfile.mkdtemp"):
            self._not_of_script += (str(Path(os.fsdecode(arguments[0])).absolute()),)
        elif event == "os.rename":
            _, path, _, folder = arguments
            if folder in (None, -1):  # otherwise the path is relative to the descriptor
                self._add(path)

    def _add(self, path: object, *, overwrites: bool = True) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor
        text = os.fsdecode(path)
        whole = str(Path(text).absolute())
        if (
            whole.startswith(self._not_of_script)
            or "__pycache__" in text
            or Path(whole).is_dir()  # a folder that is renamed, or a file without a name in it
        ):
            return
        self._on_write(whole)
        if len(self._found) < _MOST:
            # a name may not be valid UTF-8
            whole = whole.encode(errors="backslashreplace").decode()
            self._found.add(whole)
            if overwrites:
                self.overwritten.add(whole)


def _caches() -> tuple[str, ...]:
    """Return the beginnings of the paths that Python and torch write by themselves."""
    home = Path.home()
    caches = [
        os.environ.get("XDG_CACHE_HOME") or home / ".cache",
        os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
        os.environ.get("TRITON_CACHE_DIR"),
        home / ".triton",
        home / ".nv",
    ]
    temporary = Path(tempfile.gettempdir())
    starts = [str(temporary / name) for name in ("torch_", "torchinductor_", "pymp-")]
    return (*_SYSTEM, *starts, *(f"{Path(path).absolute()}/" for path in caches if path))
