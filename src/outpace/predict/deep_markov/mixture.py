"""The prediction: a mixture of K components, each of N independent log-normal run times."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from outpace.predict.normal import draw_above, log_above, log_density
from outpace.predict.recorded.table import Seconds

_LEAST = 0.1  # least effective number of components after conditioning, as a share of K


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Knowledge about the N variables of a mixture, in log seconds; shapes (N,)."""

    place: Tensor  # the worker of each variable
    x: Tensor  # its value, or NaN
    low: Tensor  # else a lower bound, -inf if there is none


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """A mixture of products of log-normals. Implements `Prediction`.

    Args:
        mean: Means of log seconds, shape (K, N).
        std: Standard deviations, the same shape.
        generator: Source of all draws.
        ordered: True: variable j is the j-th smallest run time of any worker (the paper's x̃),
            and draws are assigned to workers in a fixed, arbitrary order.
        weight: Weights of the components, shape (K,); None if all are equal.
    """

    mean: Tensor
    std: Tensor
    generator: torch.Generator
    ordered: bool = False
    weight: Tensor | None = None
    known: Known | None = None

    def sample(self, count: int) -> Seconds:
        seconds: Seconds = self.draw(count).exp_().numpy()
        return seconds

    def draw(self, count: int) -> Tensor:
        """Return joint draws of log run times, shape (count, N), float64."""
        chosen = self._components(count)
        mean, std = self.mean[chosen].double(), self.std[chosen].double()
        known = self.known
        if known is None:
            return mean + std * torch.randn(
                mean.shape, generator=self.generator, dtype=torch.float64
            )
        free = known.x.isnan()
        mean, std = mean[:, free], std[:, free]
        x = known.x.repeat(count, 1)
        x[:, free] = mean + std * draw_above((known.low[free] - mean) / std, self.generator)
        draws = torch.empty_like(x)
        draws[:, known.place] = x
        return draws

    def given(self, arrived: Seconds, elapsed_s: float) -> Mixture:
        x = log_times(arrived)
        low = torch.full_like(x, math.log(elapsed_s) if elapsed_s > 0 else -math.inf)
        return self.knowing(x, low)

    def knowing(self, x: Tensor, low: Tensor) -> Mixture:
        """Return the mixture given log run times `x` of some workers, and bounds for the others.

        x: shape (N,), float64, NaN where unknown; low: the same shape, -inf for no bound.
        Components are weighted by the density of the known times and the probability of the
        bounds. With hundreds of workers only one component of K would keep a weight, however
        wrong it is; so all weights are raised to the greatest power up to 1 that leaves an
        effective number of K/10.
        """
        known = arranged(x, low, self.generator, self.ordered)
        mean, std = self.mean.double(), self.std.double()
        come, bound = ~known.x.isnan(), known.x.isnan() & known.low.isfinite()
        log = log_density(known.x[come], mean[:, come], std[:, come]).sum(1)
        log += log_above((known.low[bound] - mean[:, bound]) / std[:, bound]).sum(1)
        return replace(self, weight=_tempered(log), known=known)

    def _components(self, count: int) -> Tensor:
        """Return the components of so many draws, by systematic resampling."""
        components = len(self.mean)
        if self.weight is None and count == components:
            return torch.arange(components)
        weight = self.weight
        if weight is None:
            weight = torch.full((components,), 1 / components, dtype=torch.float64)
        start = torch.rand(1, generator=self.generator, dtype=torch.float64)
        at = (torch.arange(count) + start) / count
        total = weight.cumsum(0)
        return torch.searchsorted(total, at * total[-1]).clamp(max=components - 1)


def arranged(x: Tensor, low: Tensor, generator: torch.Generator, ordered: bool) -> Known:
    """Assign workers to variables: their own, or if ordered that of their rank.

    A worker about which nothing is known gets a random rank. Arguments as for `knowing`.
    """
    workers = len(x)
    if not ordered:
        return Known(torch.arange(workers), x, low)
    value = torch.where(x.isnan(), low, x)
    told = value > -math.inf
    silent = int(workers - told.sum())
    any_rank = torch.zeros(workers, dtype=torch.bool)
    if silent:
        any_rank[torch.randperm(workers, generator=generator)[:silent]] = True
    place = torch.empty(workers, dtype=torch.long)
    place[any_rank] = (~told).nonzero()[:, 0]
    place[~any_rank] = told.nonzero()[:, 0][value[told].argsort(stable=True)]
    return Known(place, x[place], low[place])


def log_times(seconds: Seconds) -> Tensor:
    """Return the logarithms as a float64 tensor, for an array of any strides, writable or not."""
    return torch.from_numpy(np.array(seconds, dtype=np.float64, order="C")).log()


def _tempered(log: Tensor) -> Tensor:
    """Return weights exp(power · log), normalised, with the greatest power up to 1 that leaves an
    effective number of at least the share `_LEAST` of them.
    """
    excess = (log - log.max()).numpy()
    least = max(1.0, _LEAST * len(log))

    def weights(power: float) -> Seconds:
        raised: Seconds = np.exp(power * excess)
        raised /= raised.sum()
        return raised

    low, high = 0.0, 1.0
    if 1 / np.square(weights(high)).sum() < least:
        for _ in range(30):  # the effective number falls as the power rises
            middle = (low + high) / 2
            enough = 1 / np.square(weights(middle)).sum() >= least
            low, high = (middle, high) if enough else (low, middle)
        high = low
    return torch.from_numpy(weights(high))
