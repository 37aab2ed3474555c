"""Medians over a trace of any length, by worker, in bounded memory."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.record.reading import Ints

MOST: Final = 1 << 20  # kept values; up to this number of iterations the medians are exact


class Medians:
    """Collects a value of each iteration, and returns each worker's median.

    With more than `most` iterations, only every third one is kept, then every ninth, and so on:
    three, because what a worker does every second or fourth time is more common.
    """

    def __init__(self, workers: int, most: int = MOST) -> None:
        self._workers, self._most, self._stride = workers, most, 1
        self._parts: list[Ints] = []  # rows: worker, iteration, value
        self._count = 0

    def add(self, worker: Ints, iteration: Ints, value: Ints) -> None:
        """Take the values of some iterations."""
        self._keep([np.stack([worker, iteration, value])])
        if self._count > self._most:
            self._stride *= 3
            parts, self._parts, self._count = self._parts, [], 0
            self._keep(parts)

    def _keep(self, parts: list[Ints]) -> None:
        for rows in parts:
            kept = rows[:, rows[1] % self._stride == 0]
            self._parts.append(kept)
            self._count += kept.shape[1]

    def by_worker(self) -> NDArray[np.float64]:
        """Return the median of each worker's values; NaN for a worker without any."""
        worker, _, value = np.concatenate([np.zeros((3, 0), np.int64), *self._parts], axis=1)
        value = value[np.lexsort((value, worker))]
        count = np.bincount(worker, minlength=self._workers)
        there = count > 0
        first = (np.cumsum(count) - count)[there]
        low, high = (value[first + (count[there] - more) // 2] for more in (1, 0))
        found = np.full(self._workers, np.nan)
        found[there] = (low + high) / 2
        return found
