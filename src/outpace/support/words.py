"""Words for numbers of things."""

from __future__ import annotations


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun: `1 worker`, `1,200 workers`. several: if not noun + s."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"
