"""The prediction: a mixture of K components, each with N independent log-normal run times."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from outpace.predict.normal import draw_above
from outpace.predict.recorded import Seconds

_LEAST: Final = 0.1  # least effective number of components after conditioning, as a share of K


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Knowledge about the N variables of a mixture, in log seconds; shapes (N,).

    Attributes:
        place: the worker of each variable.
        x: its value, or NaN.
        low: if x is NaN, a lower bound; -inf if there is none.
    """

    place: Tensor
    x: Tensor
    low: Tensor

    @classmethod
    def nothing(cls, workers: int) -> Known:
        """Return the knowledge at the beginning of an iteration."""
        unknown = torch.full((workers,), torch.nan, dtype=torch.float64)
        return cls(torch.arange(workers), unknown, torch.full_like(unknown, -torch.inf))

    @classmethod
    def arranged(cls, x: Tensor, low: Tensor, generator: torch.Generator, ordered: bool) -> Known:
        """Assign workers to variables: to their own or, if ordered, to the variable of their rank.

        A worker about which nothing is known gets a random rank.

        Args:
            x: log run times of the workers, NaN where unknown.
            low: lower bounds, -inf for none.
            generator: source of the ranks.
            ordered: True: variable j is the j-th smallest run time.
        """
        workers = len(x)
        if not ordered:
            return cls(torch.arange(workers), x, low)
        value = torch.where(x.isnan(), low, x)
        told = value > -math.inf
        any_rank = torch.zeros(workers, dtype=torch.bool)
        any_rank[torch.randperm(workers, generator=generator)[: int((~told).sum())]] = True
        place = torch.empty(workers, dtype=torch.long)
        place[any_rank] = (~told).nonzero()[:, 0]
        place[~any_rank] = told.nonzero()[:, 0][value[told].argsort(stable=True)]
        return cls(place, x[place], low[place])


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """A mixture of products of log-normals. Implements `Prediction`.

    Args:
        mean: means of log seconds, shape (K, N), float64.
        std: standard deviations, the same shape.
        generator: source of all draws.
        ordered: True: variable j is the j-th smallest run time of any worker (the paper's x̃),
            and draws are assigned to workers in a fixed, arbitrary order.
        weight: weights of the components, shape (K,).
        known: knowledge about the iteration.
    """

    mean: Tensor
    std: Tensor
    generator: torch.Generator
    ordered: bool
    weight: Tensor
    known: Known

    def sample(self, count: int) -> Seconds:
        known, chosen = self.known, self._components(count)
        free = known.x.isnan()
        mean, std = self.mean[chosen][:, free], self.std[chosen][:, free]
        x = known.x.repeat(count, 1)
        x[:, free] = mean + std * draw_above((known.low[free] - mean) / std, self.generator)
        draws = torch.empty_like(x)
        draws[:, known.place] = x.exp_()
        seconds: Seconds = draws.numpy()
        return seconds

    def given(self, arrived: Seconds, elapsed_s: float) -> Mixture:
        """Return the mixture given the arrivals so far; see `Prediction.given`.

        Components are weighted by the density of the known times and the probability of the bounds.
        With hundreds of workers only one of the K components would have a weight, even if it is
        wrong. So all weights are raised to the greatest power up to 1 for which the effective
        number of components is at least K/10.
        """
        x = log_times(arrived)
        low = torch.full_like(x, math.log(elapsed_s) if elapsed_s > 0 else -math.inf)
        known = Known.arranged(x, low, self.generator, self.ordered)
        came = ~known.x.isnan()
        z = (known.x[came] - self.mean[:, came]) / self.std[:, came]
        density = -0.5 * z.square() - self.std[:, came].log()  # up to a constant
        later = (self.mean[:, ~came] - known.low[~came]) / self.std[:, ~came]
        log = density.sum(1) + torch.special.log_ndtr(later).sum(1)
        return replace(self, weight=_tempered(log), known=known)

    def _components(self, count: int) -> Tensor:
        """Return the components of a number of draws, by systematic resampling."""
        start = torch.rand(1, generator=self.generator, dtype=torch.float64)
        at = (torch.arange(count) + start) / count
        total = self.weight.cumsum(0)
        return torch.searchsorted(total, at * total[-1]).clamp(max=len(total) - 1)


def log_times(seconds: Seconds) -> Tensor:
    """Return the logarithms of an array of any strides, writable or not, as a float64 tensor."""
    return torch.from_numpy(np.array(seconds, dtype=np.float64, order="C")).log()


def _tempered(log: Tensor) -> Tensor:
    """Return weights exp(power · log), normalised, with the greatest power up to 1 that leaves an
    effective number of at least the share `_LEAST` of them.
    """
    least = max(1.0, _LEAST * len(log))

    def effective(power: float) -> float:
        return 1.0 / float((power * log).softmax(0).square().sum())

    low, high = 0.0, 1.0
    if effective(high) < least:
        for _ in range(30):  # the effective number falls as the power rises
            middle = (low + high) / 2
            low, high = (middle, high) if effective(middle) >= least else (low, middle)
        high = low
    return (high * log).softmax(0)
