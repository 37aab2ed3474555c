"""Objectives that cut-off rules maximise, for n gradients in s seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.settings import ObjectiveName


class Objective(Protocol):
    """A score that is linear in n, so that draws with equal s can be scored together."""

    def score(self, n: ArrayLike, s: ArrayLike, draws: ArrayLike = 1) -> Seconds:
        """Return the sum of the scores of `draws` draws: n gradients in all, s seconds each."""

    def observe(self, n: int, s: float) -> None:
        """Note that an iteration ended after s seconds with n gradients."""


@dataclass(frozen=True, slots=True)
class ThroughputObjective:
    """Ω = n / s of each iteration separately (BDSGD, section 3)."""

    def score(self, n: ArrayLike, s: ArrayLike, draws: ArrayLike = 1) -> Seconds:
        return np.asarray(np.asarray(n) / np.asarray(s), dtype=np.float64)

    def observe(self, n: int, s: float) -> None:
        pass


@dataclass(slots=True)
class Rate:
    """Gradients per second over the whole run: n − λ s with λ = gradients / seconds so far.

    The mean of n / s differs from the run's rate, because it weighs a short iteration with few
    gradients as much as a long one with many. The rate Σn / Σs is largest where E[n] − λ E[s]
    is, with λ the largest rate (Dinkelbach 1967); the running rate approaches λ.
    """

    gradients: float = 0.0
    seconds: float = 0.0

    def score(self, n: ArrayLike, s: ArrayLike, draws: ArrayLike = 1) -> Seconds:
        if not self.seconds:  # no iteration has ended yet
            return ThroughputObjective().score(n, s)
        rate = self.gradients / self.seconds * np.asarray(draws)
        return np.asarray(np.asarray(n) - rate * np.asarray(s), dtype=np.float64)

    def observe(self, n: int, s: float) -> None:
        self.gradients += n
        self.seconds += s


def objective(name: ObjectiveName) -> Objective:
    """Return a new objective, for one rule of one run."""
    return Rate() if name == "run" else ThroughputObjective()
