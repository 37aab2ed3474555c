"""The weights with which training begins: states that are the factors, and persist.

State f < F is the value of factor f where it is present, state F + f tells whether it is. That
lets a node be normal or slow by an amount that lasts, which normal transitions alone express
badly: a jump is rare, and most changes are nil.
"""

from __future__ import annotations

import torch
from torch import nn

from outpace.predict.deep_markov.factors import Factors
from outpace.predict.deep_markov.network import DeepMarkovNetwork

_NEAR = 0.1  # of the random initial weights in the place of known ones
_LESS = 0.3  # of those that add to known ones
_STEEP = 3.0  # from a state that tells whether a factor is present to the logit
_BETWEEN = 0.25  # of the distance of the two groups, above which a factor is present
_LATER = 0.7  # of that distance that a worker adds which was cut off
_SURE, _UNSURE = -2.0, -0.5  # before softplus: deviations of the states
_ALWAYS = 1.5  # the state of a factor that is always present


@torch.no_grad()
def begin(network: DeepMarkovNetwork, factors: Factors) -> None:
    """Set the network's weights. It has at least two states for each factor."""
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
