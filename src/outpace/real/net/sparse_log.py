"""A log whose length does not depend on how often the same event happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

Log: TypeAlias = Callable[[str], None]

_KINDS: Final = 256  # most lines that are counted separately
_LONGEST: Final = 400  # most characters of a line


class SparseLog:
    """Logs a line when it first occurs, and again whenever its count has doubled.

    Messages of unknown peers make neither the log nor the memory grow without limit.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._counts: Counter[str] = Counter()

    def note(self, line: str, *, always: bool = False, first: str = "") -> None:
        """Log a line.

        Args:
            always: log this line even if too many different lines have been logged.
            first: text that is appended the first time.
        """
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line[:_LONGEST])[:_LONGEST]
        if len(self._counts) >= _KINDS and line not in self._counts and not always:
            line = "refused something else"
        self._counts[line] += 1
        count = self._counts[line]
        if count & (count - 1) == 0:
            self._log(line + first if count == 1 else f"{line} ({count} times)")
