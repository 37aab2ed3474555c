"""Robust means and medians of logarithms of run times."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The median of |normal| is 0.6745, and a difference of two has the standard deviation √2.
_DEVIATIONS: Final = 1 / (0.6745 * math.sqrt(2))


def median(values: Floats) -> float:
    """Return the median of at least one value, faster than NumPy for few."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    return float(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def row_medians(values: Floats) -> Floats:
    """Return the median of each row without NaN, shape (T,), faster than NumPy; NaN if all are."""
    ordered = np.sort(values, axis=1)  # NaN last
    count = values.shape[1] - np.isnan(ordered).sum(axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum((count - 1) // 2, 0)]
    return np.asarray((low + ordered[rows, np.minimum(count // 2, values.shape[1] - 1)]) / 2)


def median_of_others(logs: Floats) -> Floats:
    """Return the median of each row, shape (T,); of two, the larger, since one may be fast."""
    there = ~np.isnan(logs)
    some = there.any(axis=1)
    found = np.full(len(logs), np.nan)
    found[some] = np.nanmedian(logs[some], axis=1)
    two = there.sum(axis=1) == 2
    found[two] = np.nanmax(logs[two], axis=1)
    return found


def middle_mean(values: Floats) -> float:
    """Return the mean of the middle half of the values; 0 if there is none."""
    ordered = np.sort(values[~np.isnan(values)])
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean()) if len(ordered) else 0.0


def deviation_of(steps: Floats) -> float:
    """Return the standard deviation of normal noise whose successive differences these are.

    Args:
        steps: Absolute values of at least one difference.
    """
    return median(steps) * _DEVIATIONS
