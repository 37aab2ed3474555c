"""Random numbers that are read from bytes, so that a fuzzer can change single decisions."""

from __future__ import annotations

import random


class Exhausted(Exception):  # no error: the end of an input
    """All bytes are used up."""


class Bytes(random.Random):
    """Draws what the bytes say, one after the other. Raises Exhausted at their end."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def getrandbits(self, k: int, /) -> int:
        at, self._at = self._at, self._at + (k + 7) // 8
        if self._at > len(self._data):
            raise Exhausted
        return int.from_bytes(self._data[at : self._at], "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(8) / 256
