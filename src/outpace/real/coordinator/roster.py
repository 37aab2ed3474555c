"""The workers of a run without servers, and which of them still take part."""

from __future__ import annotations

from collections.abc import Iterable


class Roster:
    """Workers by name, numbered in order."""

    def __init__(self, workers: Iterable[str]) -> None:
        self.numbers = {name: number for number, name in enumerate(workers)}
        self._gone: set[str] = set()

    @property
    def here(self) -> list[str]:
        """The workers that still take part."""
        return [name for name in self.numbers if name not in self._gone]

    def remove(self, name: str) -> None:
        """This worker has left, or is lost."""
        self._gone.add(name)
