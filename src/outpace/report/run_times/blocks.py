"""Shrinks large tables to means over blocks of neighbouring workers and iterations."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Blocks:
    """At most `most` blocks of equal size (the last may be smaller) of 0 to count - 1."""

    count: int
    most: int

    @property
    def size(self) -> int:
        return ceil(self.count / self.most)

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.arange(0, self.count, self.size)

    def labels(self) -> list[str]:
        """Return labels such as `3` or `10–14`."""
        ends = np.minimum(self.starts + self.size, self.count) - 1
        return [
            f"{start}" if start == end else f"{start}–{end}"
            for start, end in zip(self.starts, ends, strict=True)
        ]

    def sums(self, values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.add.reduceat(values, self.starts, axis=axis)
        return found


def means(values: NDArray[np.float64], rows: Blocks, columns: Blocks) -> NDArray[np.float64]:
    """Return the mean of each block, ignoring NaNs; NaN if the block has only NaNs."""
    known = ~np.isnan(values)
    total, count = (
        columns.sums(rows.sums(each, 0), 1)
        for each in (np.where(known, values, 0.0), known.astype(np.float64))
    )
    found = np.full(total.shape, np.nan)
    np.divide(total, count, out=found, where=count > 0)
    return found
