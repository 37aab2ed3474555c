"""Rules without a model: a fixed wait, a quorum, Elfving's count, an oracle of the run times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded.table import Mask, Seconds
from outpace.predict.rules.decisions import Objective, best_count
from outpace.predict.rules.iteration import came


@dataclass(frozen=True, slots=True)
class Fixed(Rule):
    """Returns the same `Wait` in every iteration; `Fixed(Wait())` waits for all workers."""

    wait: Wait

    def begin(self) -> Wait:
        return self.wait

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return self.wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Quorum(Rule):
    """Waits for `count` workers, then `timeout_s` seconds for others (PSP-SGD's partial push)."""

    count: int
    timeout_s: float

    def begin(self) -> Wait:
        return Wait(again_count=self.count)

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        return Wait(until_s=elapsed_s + self.timeout_s)

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        pass


@dataclass
class Oracle(Rule):
    """Waits for the best count, given the true run times: an upper limit for other rules.

    Each call of `times` returns the times of the next iteration, shape (N,). In a run they
    contain computation only; the rule adds the time of messages and servers in the previous
    iteration, as the median over the workers that finished.
    """

    times: Callable[[], Seconds]
    objective: Objective
    _told: Seconds = field(default_factory=lambda: np.zeros(0), init=False)
    _on_top_s: float = field(default=0.0, init=False)

    def begin(self) -> Wait:
        self._told = self.times()
        order = np.sort(np.where(np.isnan(self._told), np.inf, self._told + self._on_top_s))
        return best_count(order[None], self.objective).wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        if len(self._told):  # it has begun, and does not observe an earlier part of the run
            on_top = (seconds - self._told)[~censored]
            self._on_top_s = max(0.0, float(np.nanmedian(on_top)))
        self.objective.observe(came(seconds, censored, ended_s), ended_s)


@dataclass
class Elfving(Rule):
    """Waits for all workers during the window, then for the best count by Elfving's formula.

    The run times are taken to be normally distributed (a baseline of BDSGD):
    E[x_(j)] ≈ μ + σ E[z_(j)], with μ and σ by maximum likelihood from all times of the window.
    Order statistics are at least the smallest time of the window: for bimodal times σ is so
    large that the formula would give a first arrival near or below zero, and waiting for one
    worker would seem best.
    """

    window: int  # iterations
    _rows: list[Seconds] = field(default_factory=list, init=False)
    _wait: Wait = field(default=Wait(), init=False)

    def begin(self) -> Wait:
        return self._wait

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        if len(self._rows) < self.window:
            self._rows.append(seconds)
            if len(self._rows) == self.window:
                expected = expected_order(np.stack(self._rows))
                self._wait = best_count(expected[None], Objective()).wait


def expected_order(times: Seconds) -> Seconds:
    """Return E[x_(1)] ≤ ... ≤ E[x_(N)] of the next row; times: shape (T, N), NaN if absent."""
    scores = normal_scores(times.shape[1])
    expected = np.nanmean(times) + np.nanstd(times) * scores
    return np.asarray(np.maximum(expected, np.nanmin(times)), dtype=np.float64)


_APPROXIMATE: Final = 9  # from this sample size on; at 8 the outermost score would be 1.7 % off
_GRID: Final = 4001  # points of the integral over ± 10, exact to twelve digits


def normal_scores(n: int) -> Seconds:
    """Return E[z_(j)] for j = 1..n of n independent standard normal variables, shape (n,).

    Φ⁻¹((j − π/8) / (n − π/4 + 1)) (Elfving 1947, as quoted by BDSGD), within 1.5 %; for fewer
    than 9 variables the integral of z times the density of z_(j).
    """
    if n >= _APPROXIMATE:
        j = torch.arange(1, n + 1, dtype=torch.float64)
        scores = torch.special.ndtri((j - math.pi / 8) / (n - math.pi / 4 + 1))
        return np.asarray(scores, dtype=np.float64)
    z = torch.linspace(-10, 10, _GRID, dtype=torch.float64)
    below, density = torch.special.ndtr(z).numpy(), (-z.square() / 2).exp().numpy()
    at, step = z.numpy(), 20 / (_GRID - 1) / math.sqrt(2 * math.pi)
    terms = [
        j * math.comb(n, j) * at * density * below ** (j - 1) * below[::-1] ** (n - j)
        for j in range(1, n + 1)
    ]
    return np.array([term.sum() * step for term in terms])
