"""Factors of recorded run times, and the networks' initial weights that are made from them.

The covariance of the workers shows what they have in common, for example the slowdown of a node.
Then the networks need not discover it by small steps, and the number of factors determines how
large the state of the cluster must be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from outpace.predict.deep_markov.network import DeepMarkovNetwork

_ROWS: Final = 1024  # number of iterations from which factors are computed, evenly spaced
_FEWEST: Final = 4  # most factors, if there are that many workers
_EACH: Final = 4  # least number of iterations for each factor
_TURNS: Final = 100  # most steps of the rotation
_NARROWEST: Final = 0.02  # least deviation of the rest of a worker's times without the factors
_SMALLEST: Final = 0.05  # deviation of a factor
_APART: Final = 0.8  # share of the variance between two groups above which the groups are separate
_NEAR: Final = 0.1  # deviation of random initial weights that replace known ones
_LESS: Final = 0.3  # deviation of random initial weights that are added to known ones
_STEEP: Final = 3.0  # factor from a state that tells whether a factor is present to the logit
_BETWEEN: Final = 0.25  # share of the distance of the two groups above which a factor is present
_LATER: Final = 0.7  # share of that distance that is added for a worker that was cut off
_SURE, _UNSURE = -2.0, -0.5  # before softplus: deviations of the states
_ALWAYS: Final = 1.5  # the state of a factor that is always present


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """F factors of the standardised run times of N variables.

    A factor's values are (x - mean) @ weight, with mean 0 and variance 1 in the recorded runs.

    Args:
        mean: mean of each variable, shape (N,).
        loading: how much a factor adds to each variable, shape (N, F).
        weight: weights of the variables in each factor, shape (N, F).
        std: deviation of the rest of each variable without the factors, shape (N,).
        low: value of a factor that is not present, 0 if a factor is always present; shape (F,).
        more: mean increase of the value when the factor is present; 0 if it is always present;
            shape (F,).
    """

    mean: Tensor
    loading: Tensor
    weight: Tensor
    std: Tensor
    low: Tensor
    more: Tensor

    @property
    def count(self) -> int:
        return self.loading.shape[1]

    @classmethod
    def of(cls, x: Tensor, most: int) -> Factors:
        """Return the factors of x, shape (T, N); at most `most` of them.

        They are the principal components that exceed noise, rotated by varimax: each then concerns
        few variables, as the slowdown of a node does.
        """
        x = x[:: -(-len(x) // _ROWS)]
        mean = x.mean(0)
        x = x - mean
        _, size, axes = torch.linalg.svd(x, full_matrices=False)
        enough = max(_FEWEST, _above_noise(size, *x.shape))
        count = min(enough, most, x.shape[1], max(1, len(x) // _EACH))
        deviation = (size[:count] / len(x) ** 0.5).clamp(min=_SMALLEST)
        loading, weight = axes[:count].t() * deviation, axes[:count].t() / deviation
        if count > 1:
            turn = _varimax(loading)
            loading, weight = loading @ turn, weight @ turn
        values = x @ weight
        # the sign for which rare values are large
        upward = torch.where((values**3).mean(0) < 0, -1.0, 1.0)
        loading, weight, values = loading * upward, weight * upward, values * upward
        std = (x - values @ loading.t()).std(0, correction=0).clamp(min=_NARROWEST)
        pairs = [_low_and_more(value) for value in values.unbind(1)]
        low, more = torch.tensor(pairs, dtype=torch.float64).unbind(1)
        return cls(mean, loading, weight, std, low, more)


def _above_noise(size: Tensor, rows: int, columns: int) -> int:
    """Return the number of singular values above noise (Gavish and Donoho 2014, eq. 11)."""
    ratio = min(rows, columns) / max(rows, columns)
    times = 0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43
    return int((size > times * size.median()).sum())


def _varimax(loading: Tensor) -> Tensor:
    """Return the rotation after which squared loadings vary most (Kaiser 1958)."""
    turn = torch.eye(loading.shape[1], dtype=loading.dtype)
    for _ in range(_TURNS):
        turned = loading @ turn
        steep = loading.t() @ (turned**3 - turned * turned.square().mean(0))
        left, _, right = torch.linalg.svd(steep)
        before, turn = turn, left @ right
        if float((turn - before).abs().max()) < 1e-4:
            break
    return turn


def _low_and_more(values: Tensor) -> tuple[float, float]:
    """Return `low` and `more` of a factor, by the best division into two groups (Otsu 1979)."""
    ascending = values.double().sort().values
    below = torch.arange(1, len(ascending), dtype=torch.float64)
    share = below / len(ascending)
    sums = ascending.cumsum(0)
    lower = sums[:-1] / below
    upper = (sums[-1] - sums[:-1]) / (len(ascending) - below)
    between = share * (1.0 - share) * (upper - lower).square()
    at = int(between.argmax())
    if float(between[at]) < _APART * float(ascending.var(correction=0)) or between[at] <= 0:
        return 0.0, 0.0
    return float(ascending[: at + 1].median()), float(upper[at] - lower[at])


@torch.no_grad()
def begin(network: DeepMarkovNetwork, factors: Factors) -> None:
    """Set the weights with which training begins: states equal the factors, and persist.

    State f < F is the value of factor f when it is present; state F + f tells whether it is
    present. So a node can be normal, or slow by a lasting amount. Normal transitions alone express
    this badly, because a jump is rare, and most changes are zero.
    """
    emission, guide, keep = network.emission, network.guide, network.transition.keep
    workers, count = factors.loading.shape
    values, presence = slice(count), slice(count, 2 * count)
    own = torch.arange(count)

    for layer in (emission.value, emission.open):
        layer.weight.mul_(_NEAR)
        layer.bias.zero_()
    emission.value.weight[own, own] = 1.0
    emission.open.weight[own, count + own] = _STEEP
    emission.loading.weight.copy_(factors.loading)
    emission.mean.weight.mul_(_LESS)
    emission.mean.bias.copy_(factors.mean + factors.loading @ factors.low)
    emission.log_std.weight.mul_(_LESS)
    emission.log_std.bias.copy_(factors.std.log())

    two = factors.more > 0
    steep = torch.where(two, _STEEP / factors.more.clamp(min=1e-3), 0.0)
    usual = factors.mean @ factors.weight + factors.low
    centre = -steep * (usual + _BETWEEN * factors.more)
    later = factors.weight * factors.loading * torch.where(two, _LATER * factors.more, 1.0)
    linear = guide.linear.weight
    linear.mul_(_NEAR)
    linear[:, workers:].zero_()
    linear[values, :workers] = factors.weight.t()
    linear[values, workers:] = later.t()
    linear[presence, :workers] = (factors.weight * steep).t()
    linear[presence, workers:] = (later * steep).t()
    guide.mean.weight.mul_(_LESS)
    guide.mean.bias.zero_()
    guide.mean.bias[values] = -usual
    guide.mean.bias[presence] = torch.where(two, centre, _ALWAYS)
    guide.back.weight.mul_(_LESS)
    guide.spread.bias.fill_(_SURE)
    guide.spread.bias[presence] = _UNSURE

    nn.init.eye_(keep.weight)
    nn.init.zeros_(keep.bias)
