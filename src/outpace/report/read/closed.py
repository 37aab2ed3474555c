"""The iterations that a scheduler closed, with the gradients that counted in each.

Successive iterations are kept in groups. The groups grow with the run, so that memory does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST: Final = 1024  # groups; a power of two


@dataclass(frozen=True)
class Deepest:
    """The iteration in which the fewest gradients counted; the first if there are several."""

    iteration: int
    start_ns: int
    end_ns: int
    gradients: int


@dataclass(frozen=True)
class CutOffs:
    """Sums over groups of closed iterations. Arrays are indexed by group.

    Attributes:
        width: iterations in a group; the last group may have fewer.
        gradients: sum of the gradients that counted.
        open_s: sum of the seconds that the iterations lasted.
        ended_s: when the last iteration of the group was closed.
    """

    width: int
    iterations: NDArray[np.int64]
    gradients: NDArray[np.int64]
    open_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    deepest: Deepest


class Accumulator:
    """Adds up the rows of a trace, batch by batch."""

    def __init__(self) -> None:
        self._width = 1
        self._sums = np.zeros((3, MOST), np.int64)  # iterations, gradients, ns
        self._ended = np.zeros(MOST, np.int64)  # ns
        self._deepest: Deepest | None = None

    def add(self, rows: Mapping[str, NDArray[np.int64]]) -> None:
        """Add columns iteration, start_ns, end_ns, clock. Raises ValueError if inconsistent."""
        number, count, start, end = (
            rows[name] for name in ("iteration", "clock", "start_ns", "end_ns")
        )
        if not len(number):
            return
        if min(number.min(), count.min(), start.min(), (end - start).min()) < 0:
            raise ValueError("an iteration in it was closed before it started, or lacks a number")
        while number.max() >= self._width * MOST:
            self._widen()
        group = number // self._width
        parts = np.ones_like(count), count, end - start
        for sums, values in zip(self._sums, parts, strict=True):
            np.add.at(sums, group, values)
        np.maximum.at(self._ended, group, end)
        at = int(count.argmin())
        if self._deepest is None or count[at] < self._deepest.gradients:
            self._deepest = Deepest(int(number[at]), int(start[at]), int(end[at]), int(count[at]))

    def _widen(self) -> None:
        self._width *= 2
        for kept, folded in (
            (self._sums, self._sums.reshape(3, -1, 2).sum(2)),
            (self._ended, self._ended.reshape(-1, 2).max(1)),
        ):
            kept[..., : MOST // 2] = folded
            kept[..., MOST // 2 :] = 0

    def all(self) -> CutOffs | None:
        """Return the sums, or None if no iteration was closed."""
        if self._deepest is None:
            return None
        there = self._sums[0] > 0
        iterations, gradients, open_ns = self._sums[:, there]
        return CutOffs(
            self._width,
            iterations,
            gradients,
            open_ns * 1e-9,
            self._ended[there] * 1e-9,
            self._deepest,
        )
