"""Warnings about a run in virtual time, and their display on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from outpace.errors import OutpaceWarning


def warn(text: str) -> None:
    """Warn the caller of the API. Python shows the same warning only once."""
    warnings.warn(text, OutpaceWarning, stacklevel=2)


def once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that calls `say` only once for each text."""
    said = set[str]()

    def say_once(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return say_once


@contextmanager
def warnings_to(say: Callable[[str], None], others: bool = False) -> Iterator[None]:
    """Pass warnings of Outpace to `say` in this block.

    others: True: pass other warnings to `say` as well, with their place in the code; False: show
    them as usual.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", OutpaceWarning)
        show = warnings.showwarning

        def shown(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, OutpaceWarning):
                say(str(message))
            elif others:
                say(f"{filename}:{lineno}: {category.__name__}: {message}")
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = shown
        yield


def show_as_usual() -> None:
    """Show warnings as a new Python does, in a forked copy of a process."""
    kept = [each for each in warnings.filters if each[2] is not OutpaceWarning]
    warnings.filters[:] = kept  # type: ignore[index]  # a list, which typeshed does not say
    warnings.showwarning = vars(warnings)["_showwarning_orig"]
