"""Errors of a run's files, each in one line that names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa


class Unreadable(Exception):
    """A file is missing or damaged. The message is one line: the file and the cause."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the exceptions that a missing or damaged file causes into Unreadable."""
    try:
        yield
    except FileNotFoundError:
        raise Unreadable(f"{path}: there is no such file") from None
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        MemoryError,
        pa.ArrowException,
    ) as error:
        raise Unreadable(f"{path}: {_cause(error)}") from error


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def _cause(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return one_line(error.strerror)
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return one_line(text) or type(error).__name__
