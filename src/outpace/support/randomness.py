"""Random numbers that depend on what they are for, not on when they are drawn.

`Stream(seed, purpose, worker)[i]` is a pure function of those four: Philox, a
counter-based generator (Salmon et al., SC 2011), keyed by seed and purpose, with the
worker and a chunk of iterations as its counter. Workers that overtake each other, work
done later or in parallel, and work never done leave all other numbers as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

CHUNK: Final = 64  # iterations drawn at once: a generator costs 10 µs, a number 20 ns


def generator(seed: int, purpose: str, *counter: int) -> np.random.Generator:
    """A generator of its own for each (seed, purpose, up to three counters)."""
    key = np.array([seed & (2**64 - 1), zlib.crc32(purpose.encode())], dtype=np.uint64)
    # The lowest word counts the numbers drawn.
    return np.random.Generator(
        np.random.Philox(key=key, counter=[0, *counter, *[0] * (3 - len(counter))])
    )


class RandomStream:
    """The numbers of one worker for one purpose, by iteration.

    `draw(generator, n)` makes n of them. One chunk is kept: going back is possible, and
    slower.
    """

    __slots__ = ("_chunk", "_draw", "_numbers", "_purpose", "_seed", "_worker")

    def __init__(
        self,
        seed: int,
        purpose: str,
        worker: int,
        draw: Callable[[np.random.Generator, int], NDArray[np.float64]],
    ) -> None:
        self._seed, self._purpose, self._worker, self._draw = seed, purpose, worker, draw
        self._chunk = -1
        self._numbers: list[float] = []

    def __getitem__(self, iteration: int) -> float:
        chunk, place = divmod(iteration, CHUNK)
        if chunk != self._chunk:
            self._chunk = chunk
            source = generator(self._seed, self._purpose, self._worker, chunk)
            self._numbers = self._draw(source, CHUNK).tolist()
        return self._numbers[place]
