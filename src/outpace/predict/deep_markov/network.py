"""The networks: transition, emission, guide, and the lower bound with which they are trained.

x: standardised log run times of L iterations in B windows, shape (L, B, N). z: the cluster's
states, shape (L, B, D). Every network returns mean and standard deviation of a normal
distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

Moments: TypeAlias = tuple[Tensor, Tensor]  # mean and standard deviation
_NARROWEST = 1e-3  # smallest standard deviation of a state
RANGE = 10.0  # limit of standardised log run times, for glitches and new regimes
_LEAST_LOG = -6.9  # least deviation of a run time, which bounds the likelihood
_MOST_LOG = 1.6  # five times the width of all workers


class Seen(NamedTuple):
    """Run times, and which of them are lower bounds; both have the shape (L, B, N)."""

    x: Tensor  # run times, or their lower bounds if they were cut off
    cut: Tensor  # 1 where x is a lower bound, else 0


def _spread(free: Tensor) -> Tensor:
    return softplus(free) + _NARROWEST


class Transition(nn.Module):
    """p(z_t | z_{t-1}): a gate between a linear map and a network (Krishnan et al., eq. 6)."""

    def __init__(self, latent: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(latent, 2 * hidden)
        self.gate = nn.Linear(hidden, latent)
        self.move = nn.Linear(hidden, latent)
        self.keep = nn.Linear(latent, latent)
        self.spread = nn.Linear(hidden, latent)

    def forward(self, z: Tensor) -> Moments:
        closing, moving = torch.relu(self.hidden(z)).chunk(2, -1)
        gate = torch.sigmoid(self.gate(closing))
        mean = torch.lerp(self.keep(z), self.move(moving), gate)
        return mean, _spread(self.spread(moving))


class Emission(nn.Module):
    """The emission p(x_t | z_t): a factor model, whose factors are gated, added to a network."""

    def __init__(self, latent: int, hidden: int, factors: int, workers: int) -> None:
        super().__init__()
        self.value = nn.Linear(latent, factors)
        self.open = nn.Linear(latent, factors)
        self.loading = nn.Linear(factors, workers, bias=False)
        self.hidden = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.mean = nn.Linear(hidden, workers)
        self.log_std = nn.Linear(hidden, workers)

    def logs(self, z: Tensor) -> Moments:
        """Return mean and logarithm of the standard deviation.

        Both are bounded. Otherwise, in a state outside the range of the recorded runs, deviations
        would grow exponentially, and a single draw near 0 s would make 1 the best cut-off.
        """
        hidden = self.hidden(z)
        gated = self.value(z) * torch.sigmoid(self.open(z))
        mean = (self.mean(hidden) + self.loading(gated)).clamp(-RANGE, RANGE)
        return mean, self.log_std(hidden).clamp(_LEAST_LOG, _MOST_LOG)

    def forward(self, z: Tensor) -> Moments:
        mean, log_std = self.logs(z)
        return mean, log_std.exp()


class Guide(nn.Module):
    """q(z_t | z_{t-1}, x_{t:L}): an RNN reads the window from its end (Krishnan et al., DKS).

    The true posterior depends on the same values: given z_{t-1}, earlier x carry no information.
    The gates of the RNN depend only on x, so that all its matrix products are computed at once.
    """

    def __init__(self, latent: int, hidden: int, workers: int) -> None:
        super().__init__()
        self.read = nn.Linear(2 * workers, hidden)
        self.linear = nn.Linear(2 * workers, latent, bias=False)
        self.gates = nn.Linear(hidden, 2 * hidden)
        self.mean = nn.Linear(hidden, latent)
        self.spread = nn.Linear(hidden, latent)
        self.carry = nn.Linear(latent, hidden)
        self.back = nn.Linear(hidden, latent, bias=False)
        self.start = nn.Parameter(torch.zeros(latent))

    def forward(self, seen: Seen, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw z; return it with mean and standard deviation of each step, shapes (L, K, D).

        noise: Standard normal, shape (L, K, D); K = B, or any K for one window (B = 1).
        """
        known = torch.cat(seen, -1)
        new, gate = self.gates(torch.relu(self.read(known))).chunk(2, -1)
        ahead = _backwards(torch.tanh(new), torch.sigmoid(gate))
        std = _spread(self.spread(ahead)).expand_as(noise)
        drawn = std * noise
        free = self.mean(ahead) + self.linear(known) + drawn
        before, states = self.start.expand(free.shape[1], -1), []
        for each in free:
            before = each + self.back(torch.tanh(self.carry(before)))
            states.append(before)
        z = torch.stack(states)
        return z, z - drawn, std


def _backwards(new: Tensor, gate: Tensor) -> Tensor:
    """Return h, shape (L, B, H), with h_L = new_L and h_t = h_{t+1} + gate_t (new_t - h_{t+1})."""
    found = [new[-1]]
    for at, share in zip(new[:-1].flip(0), gate[:-1].flip(0), strict=True):
        found.append(torch.lerp(found[-1], at, share))
    return torch.stack(found[::-1])


def log_likelihood(told: Seen, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the sum over N of ln N(x; mean, std²), or of ln P(more than x) where `cut` is 1.

    The arguments have the shape (L, B, N).
    """
    z = (told.x - mean) * (-log_std).exp()
    found, cut = -0.5 * z.square() - log_std - 0.5 * math.log(2.0 * math.pi), told.cut > 0
    if cut.any():  # the tail is needed only there, and it costs more than everything else
        found[cut] = torch.special.log_ndtr(-z[cut])
    return found.sum(-1)


class DeepMarkovNetwork(nn.Module):
    """All networks, and the distribution of the first state of a window."""

    def __init__(self, workers: int, latent: int, hidden: int, factors: int) -> None:
        super().__init__()
        self.transition = Transition(latent, hidden)
        self.emission = Emission(latent, hidden, factors, workers)
        self.guide = Guide(latent, hidden, workers)
        self.first_mean = nn.Parameter(torch.zeros(latent))
        self.first_spread = nn.Parameter(torch.zeros(latent))

    @property
    def latent(self) -> int:
        return len(self.first_mean)

    def first(self) -> Moments:
        """Return p(z) of an iteration without a known past."""
        return self.first_mean, _spread(self.first_spread)

    def bound(self, told: Seen, seen: Seen, noise: Tensor, weight: float = 1.0) -> Tensor:
        """Return a lower bound of ln p(told), the paper's ELBO, one draw per window, shape (B,).

        A run time that was cut off counts by the probability of a longer one. The divergence of
        guide and prior is exact given z_{t-1}; `weight` is its factor, for annealing. The guide
        reads `seen`, which may be less than `told`. noise: standard normal, shape (L, B, D).
        """
        z, mean, std = self.guide(seen, noise)
        moved_mean, moved_std = self.transition(z[:-1])
        first_mean, first_std = (part.expand(1, z.shape[1], -1) for part in self.first())
        prior_mean = torch.cat([first_mean, moved_mean])
        prior_std = torch.cat([first_std, moved_std])
        likelihood = log_likelihood(told, *self.emission.logs(z)).sum(0)
        divergence = kl_divergence(Normal(mean, std), Normal(prior_mean, prior_std))
        return likelihood - weight * divergence.sum((0, 2))

    def ahead(self, seen: Seen, count: int, generator: torch.Generator) -> Moments:
        """Predict the iteration after a window: `count` components, shapes (count, N).

        seen: the window, shapes (L, N); L = 0 before the first iteration.
        """
        length = len(seen.x)
        shape = length + 1, count, self.latent
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        if length:
            z, _, _ = self.guide(Seen(seen.x[:, None], seen.cut[:, None]), noise[:-1])
            mean, std = self.transition(z[-1])
        else:
            mean, std = self.first()
        following: Moments = self.emission(mean + std * noise[-1])
        return following
