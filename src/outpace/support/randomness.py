"""Random numbers that depend on their use, and not on the time when they are drawn.

Each number of a `RandomStream` is a pure function of seed, purpose, worker and iteration (and of
the law that draws it). The generator is Philox, which is counter-based (Salmon et al., SC 2011):
its key is seed and purpose, its counter the worker and a chunk of iterations. Numbers do not change
if workers overtake each other, or if work is done later, in parallel, or never.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

CHUNK: Final = 64  # iterations per chunk: a generator costs 10 µs to make, a number 20 ns to draw


def generator(seed: int, purpose: str, *counter: int) -> np.random.Generator:
    """Return the generator for (seed, purpose, up to three counters)."""
    key = np.array([seed & (2**64 - 1), zlib.crc32(purpose.encode())], dtype=np.uint64)
    # The lowest word counts the numbers drawn.
    return np.random.Generator(
        np.random.Philox(key=key, counter=[0, *counter, *[0] * (3 - len(counter))])
    )


class RandomStream:
    """The numbers of one worker for one purpose, by iteration.

    Only one chunk is kept, so going back to an earlier iteration is slow.

    Args:
        draw: draws n numbers from (generator, n).
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
