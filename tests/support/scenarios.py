"""A model that is completely known: finitely many iterations with equal probability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np


@dataclass(frozen=True, eq=False)
class Scenarios:
    """seconds: shape (S, N). Conditioning removes iterations that disagree; it does not draw."""

    seconds: np.ndarray

    def sample(self, count):
        return np.tile(self.seconds, (-(-count // len(self.seconds)), 1))

    def given(self, arrived, elapsed_s):
        came = self.seconds <= elapsed_s
        same = (came == ~np.isnan(arrived)).all(axis=1)
        same &= (np.where(came, self.seconds, 0) == np.nan_to_num(arrived)).all(axis=1)
        return Scenarios(self.seconds[same])


class Always:
    """A filter whose prediction does not depend on its observations."""

    def __init__(self, prediction):
        self.prediction = prediction

    def observe(self, seconds, censored):
        pass

    def predict(self):
        return self.prediction


def best_stopping(seconds: np.ndarray) -> float:
    """Return the largest E[n / s] that any rule can reach, by dynamic programming.

    A rule may stop at any time at which a worker may come: between two such times it learns
    nothing, and n / s only falls.
    """
    grid = np.unique(seconds)

    @cache
    def value(at: int, agree: tuple[int, ...]) -> float:
        here = int((seconds[agree[0]] <= grid[at]).sum())
        if here == seconds.shape[1]:
            return here / grid[at]
        parts: dict[bytes, list[int]] = {}
        for row in agree:
            seen = np.where(seconds[row] <= grid[at + 1], seconds[row], np.nan)
            parts.setdefault(seen.tobytes(), []).append(row)
        later = sum(len(rows) * value(at + 1, tuple(rows)) for rows in parts.values())
        return max(here / grid[at], later / len(agree))

    parts: dict[bytes, list[int]] = {}
    for row, times in enumerate(seconds):
        parts.setdefault(np.where(times <= grid[0], times, np.nan).tobytes(), []).append(row)
    return sum(len(rows) * value(0, tuple(rows)) for rows in parts.values()) / len(seconds)
