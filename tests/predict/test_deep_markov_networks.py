"""The deep Markov model's arithmetic, compared with exact results."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from outpace.predict.deep_markov.factors import Factors
from outpace.predict.deep_markov.network import DeepMarkovNetwork, Seen, log_likelihood
from outpace.predict.normal import draw_above

# z_1 ~ N(0.3, 0.8²), z_t = 0.7 z_{t-1} + 0.2 + N(0, 0.5²), x_t = z_t (1.5, -1) + (0.1, 0.4) + noise
FIRST, FIRST_STD, KEEP, MOVE, STEP_STD = 0.3, 0.8, 0.7, 0.2, 0.5
LOADING, OFFSET, NOISE = (1.5, -1.0), (0.1, 0.4), (0.6, 0.9)
WINDOW = torch.tensor([[[0.9, -0.2]], [[1.4, -0.6]], [[0.2, 0.5]]], dtype=torch.float64)


def before_softplus(std):
    return math.log(math.expm1(std - 1e-3))


def seen(window):
    return Seen(window, torch.zeros_like(window))


def linear_network() -> DeepMarkovNetwork:
    """The weights that make the networks the linear-Gaussian model above, in float64."""
    network = (
        DeepMarkovNetwork(workers=2, latent=1, hidden=2, factors=1).double().requires_grad_(False)
    )
    for parameter in network.parameters():
        parameter.zero_()
    network.first_mean.fill_(FIRST)
    network.first_spread.fill_(before_softplus(FIRST_STD))
    transition, emission = network.transition, network.emission
    transition.gate.bias.fill_(-1e3)  # closed: only the linear map is left
    transition.keep.weight.fill_(KEEP)
    transition.keep.bias.fill_(MOVE)
    transition.spread.bias.fill_(before_softplus(STEP_STD))
    emission.hidden[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))  # relu(z) - relu(-z) = z
    emission.hidden[2].weight.copy_(torch.eye(2))
    loading = torch.tensor(LOADING, dtype=torch.float64)
    emission.mean.weight.copy_(torch.stack([loading, -loading], 1))
    emission.mean.bias.copy_(torch.tensor(OFFSET))
    emission.log_std.bias.copy_(torch.tensor(NOISE).log())
    network.guide.mean.bias.fill_(0.5)
    network.guide.spread.bias.fill_(before_softplus(0.4))
    return network


def kalman(window):
    """ln p(x) exactly, and mean and standard deviation of the last state given all of x."""
    loading, offset = (torch.tensor(part, dtype=torch.float64) for part in (LOADING, OFFSET))
    noise = torch.diag(torch.tensor(NOISE, dtype=torch.float64).square())
    mean, variance, total = FIRST, FIRST_STD**2, 0.0
    for t, x in enumerate(window):
        if t:
            mean, variance = KEEP * mean + MOVE, KEEP**2 * variance + STEP_STD**2
        covariance = variance * torch.outer(loading, loading) + noise
        predicted = loading * mean + offset
        law = torch.distributions.MultivariateNormal(predicted, covariance)
        total += float(law.log_prob(x))
        gain = variance * torch.linalg.solve(covariance, loading)
        mean += float(gain @ (x - predicted))
        variance *= 1 - float(gain @ loading)
    return total, mean, math.sqrt(variance)


def bounds(network, window, count):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(window), count, 1, generator=generator, dtype=torch.float64)
    many = seen(window.expand(-1, count, -1))
    return network.bound(many, many, noise)


def test_with_the_exact_posterior_as_guide_the_bound_is_the_likelihood():
    network, window = linear_network(), WINDOW[:1]
    exact, mean, std = kalman(window[:, 0])
    network.guide.mean.bias.fill_(mean)
    network.guide.spread.bias.fill_(before_softplus(std))
    draws = bounds(network, window, 20_000)
    # Single draws scatter, as the divergence is taken exactly and the likelihood is not.
    assert float(draws.mean()) == pytest.approx(exact, abs=4 * float(draws.std()) / 141)


def test_a_state_beyond_all_that_were_learned_gives_no_run_time_near_zero():
    # Of 2175 sorted run times one draw near 0 s was enough to make 1 the best cut-off.
    torch.manual_seed(0)
    network = DeepMarkovNetwork(workers=50, latent=4, hidden=8, factors=2).requires_grad_(False)
    far = 1e4 * torch.randn(100, 4)
    mean, std = network.emission(far)
    assert float(mean.abs().max()) == pytest.approx(10)  # the range of its observations
    assert float(std.max()) == pytest.approx(4.95, abs=0.01)
    near, spread = network.emission(far / 1e6)
    assert float(near.abs().max()) < 5
    assert float(spread.max()) < 4


def test_of_a_time_that_was_cut_off_only_the_probability_of_a_longer_one_counts():
    x, mean = torch.tensor([[[0.4, 1.1]]]), torch.tensor([[[0.1, 0.3]]])
    told = Seen(x, torch.tensor([[[0.0, 1.0]]]))
    found = log_likelihood(told, mean, torch.full((1, 1, 2), 0.5).log())
    expected = scipy.stats.norm.logpdf(0.4, 0.1, 0.5) + scipy.stats.norm.logsf(1.1, 0.3, 0.5)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_factors_are_the_nodes_that_slow_down_and_tell_normal_from_slow():
    rng = np.random.default_rng(0)
    slow = (rng.random((300, 6)) < 0.3).repeat(5, axis=1)
    x = torch.from_numpy(2.0 * slow + rng.normal(0, 0.1, slow.shape))
    factors = Factors.of(x, most=32)
    assert factors.count == 6
    shares = factors.loading.square().unflatten(0, (6, 5)).sum(1)
    shares = shares / shares.sum(0)
    assert torch.allclose(shares.max(0).values, torch.ones(6, dtype=torch.float64), atol=0.02)
    assert set(shares.argmax(0).tolist()) == set(range(6))
    # A slow node adds 2 to each of its workers.
    added = (factors.loading * factors.more).max(0).values
    assert torch.allclose(added, torch.full((6,), 2.0, dtype=torch.float64), atol=0.1)


@pytest.mark.parametrize("low", [-6.0, -2.0, 0.0, 1.5, 8.0])
def test_draws_above_a_bound_have_the_truncated_law(low):
    bounds = torch.full((20_000,), low, dtype=torch.float64)
    draws = draw_above(bounds, torch.Generator().manual_seed(3))
    assert float(draws.min()) >= low
    law = scipy.stats.truncnorm(low, math.inf)
    assert scipy.stats.kstest(draws.numpy(), law.cdf).pvalue > 0.01
