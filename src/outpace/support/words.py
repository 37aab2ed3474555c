"""Words for numbers of things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_NAMED: Final = 3


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun: `1 worker`, `1,200 workers`. several: if not noun + s."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Return names as a list in words; of many, the first `most` and how many others there are."""
    rest = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *rest])


def some_of(names: Sequence[str]) -> str:
    """Return the first names and the number of the others: `a, b, c and 2 more`."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
