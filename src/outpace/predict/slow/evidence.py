"""Evidence that units are slower than the others, from bets on their run times.

The run times of one iteration are compared with each other, on a logarithmic scale, so that a
factor common to all cancels. Let x_1, ..., x_N be these logarithms, in standard deviations from
their median, limited to ±3 so that a pause of one unit does not hide another. If unit w is like
the others (the run times of an iteration are exchangeable, whatever their law), then each of them
was as likely to be that of w, and for every number l

    L = exp(l x_w) / mean_v exp(l x_v)

has mean 1. So a product of L over iterations from s on is a martingale, and so is a mixture over l
and s: the bets start at each iteration s anew with the weight p_s, where the p_s sum up to 1,

    E_t = (E_(t-1) + p_s) L_t  with s = t      averaged over l = 0.5, 1, 2.

By Ville's inequality it reaches N / a at any time with a chance of at most a / N, so that in the
whole run, however long, any of N equal units reaches it with a chance of at most a. This is a test
by betting (Shafer, Testing by betting, JRSS A 184, 2021). L is the likelihood ratio for normal
noise with standard deviation 1, in which w is slower by l, given the set of run times; the mixture
over s is an e-detector (Shin, Ramdas and Rinaldo, E-detectors, NEJSDS 2, 2024) with a weight
for each start, as in alpha spending.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LIMIT: Final = 3.0  # standard deviations
LEAST_DEVIATION: Final = 0.005  # of logarithms of run times
FIRST: Final = 3  # row with the first bets
_LEVELS: Final = np.array([[0.5], [1.0], [2.0]])  # l, shape (L, 1)
_LARGEST: Final = 1e200


class Evidence:
    """The evidence of each unit.

    Rows are numbered from 1. The standard deviation is that of the rows before, of which it needs
    two, so bets begin with row FIRST.

    Args:
        units: Number of units, N.
    """

    def __init__(self, units: int) -> None:
        self._of = np.zeros((len(_LEVELS), units))
        self._since = np.zeros(units, np.int64)  # the row after which the bets on a unit began

    @property
    def of_units(self) -> Floats:
        """The evidence, shape (N,); its mean is at most 1 for a unit like the others."""
        return np.asarray(self._of.sum(axis=0) / len(_LEVELS))

    def bet(self, scores: Floats, compared: Mask, row: int) -> None:
        """Multiply the evidence by the ratios of a row, from FIRST on."""
        heights = np.exp(_LEVELS * np.where(compared, scores, 0.0))
        heights *= compared
        mean = heights.sum(axis=1, keepdims=True) / compared.sum()
        self._of += _weight(row)
        np.multiply(self._of, heights / mean, out=self._of, where=compared)
        np.minimum(self._of, _LARGEST, out=self._of)

    def forget(self, unit: int, row: int) -> None:
        """Begin anew after this row."""
        self._since[unit] = row
        self._of[:, unit] = 0.0

    def judge_anew(self, kept: Sequence[Floats], rows: int, usual: Mask) -> None:
        """Repeat the bets of the last rows among the usual units.

        Args:
            kept: The scores of the last rows.
            rows: Number of rows so far.
        """
        first = rows - len(kept) + 1
        self._of[:] = _weight_before(first)
        for row, scores in enumerate(kept, first):
            compared = usual & ~np.isnan(scores) & (self._since < row)
            if row >= FIRST and compared.sum() > 1:
                self.bet(scores, compared, row)
            self._of[:, self._since >= row] = 0.0
        self._of[:, ~usual] = 0.0

    def begin(self, unit: int, kept: Sequence[Floats], rows: int, usual: Mask) -> int:
        """Return the place among the kept rows from which on the evidence is the largest."""
        level = float(_LEVELS[int(self._of[:, unit].argmax()), 0])
        scores = level * np.array(kept)
        others = usual.copy()
        others[unit] = True
        there = others & ~np.isnan(scores)
        heights = np.where(there, np.exp(np.where(there, scores, 0.0)), 0.0)
        mean = heights.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        own = np.where(there[:, unit], scores[:, unit], 0.0)
        ratios = np.where(there[:, unit], own - np.log(np.maximum(mean, 1e-300)), 0.0)
        first = rows - len(ratios) + 1
        weights = np.log([_weight(row) for row in range(first, rows + 1)])
        weights[0] = math.log(_weight_before(max(first, FIRST) + 1))
        weights[: max(0, int(self._since[unit]) - first + 1)] = -np.inf
        found = int((ratios[::-1].cumsum()[::-1] + weights).argmax())
        return 0 if first + found <= FIRST else found  # the rows before, too, if without bets


def _weight(row: int) -> float:
    """Return p_s for the bets that begin at a row: 1/2, 1/4, 1/12, 1/24, ...; their sum is 1."""
    start = max(row - FIRST + 1, 1)
    return 0.5 if start == 1 else 0.5 / ((start - 1) * start)


def _weight_before(row: int) -> float:
    """Return the sum of the weights of the rows from FIRST to before this one."""
    return 1 - 0.5 / (row - FIRST) if row > FIRST else 0.0
