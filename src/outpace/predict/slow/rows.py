"""Collects run times by iteration, from units that are at different iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MOST: Final = 4096  # iterations that wait for a unit


class Rows:
    """Makes rows of single run times. A row is complete when all units have given theirs.

    With more than `most` rows that wait, the oldest is given out incomplete.

    Args:
        units: How many there are.
    """

    def __init__(self, units: int, most: int = _MOST) -> None:
        self._units, self._most = units, most
        self._waiting: dict[int, Floats] = {}  # iteration -> run times (N,), NaN: not yet known
        self._missing: dict[int, int] = {}  # iteration -> units whose time is not yet known

    def add(
        self, units: NDArray[np.int64], iterations: NDArray[np.int64], seconds: Floats
    ) -> Iterator[tuple[int, Floats]]:
        """Take run times, shapes (K,); yield the iteration and the times (N,) of complete rows."""
        waiting, missing = self._waiting, self._missing
        given = zip(units.tolist(), iterations.tolist(), seconds.tolist(), strict=True)
        for unit, iteration, time_s in given:
            row = waiting.get(iteration)
            if row is None:
                row = waiting[iteration] = np.full(self._units, np.nan)
                missing[iteration] = self._units
            row[unit] = time_s
            missing[iteration] -= 1
            if not missing[iteration]:
                yield self._given(iteration)
            elif len(waiting) > self._most:
                yield self._given(min(waiting))

    def _given(self, iteration: int) -> tuple[int, Floats]:
        del self._missing[iteration]
        return iteration, self._waiting.pop(iteration)
