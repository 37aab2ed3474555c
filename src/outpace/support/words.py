"""Words for numbers of things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun, such as `1 worker` or `1,200 workers`."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others, as in `a, b, c and 2 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


# Control characters except ends of lines, and characters that change the direction of writing.
_UNSEEN: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *range(32),
        *range(127, 160),
        *range(0x200E, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
    if chr(code) not in "\n\t"
}


def printable(text: str) -> str:
    """Return a text with the characters that control a terminal escaped: ESC becomes \x1b."""
    return text.translate(_UNSEEN)
