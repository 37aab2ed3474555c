"""The networks: transition, emission, guide, and the lower bound by which they are trained.

x: standardised log run times of L iterations, shape (B, L, N). z: the cluster's states,
shape (B, L, D). Every network returns mean and standard deviation of a normal distribution.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from outpace.predict.normal import divergence, log_density

Normal: TypeAlias = tuple[Tensor, Tensor]
_NARROWEST = 1e-3  # smallest standard deviation: it bounds the likelihood


def _spread(free: Tensor) -> Tensor:
    return softplus(free) + _NARROWEST


class Transition(nn.Module):
    """p(z_t | z_{t-1}): a gate between a linear map and a network (Krishnan et al., eq. 6)."""

    def __init__(self, latent: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, latent))
        self.move = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, latent))
        self.keep = nn.Linear(latent, latent)
        self.spread = nn.Linear(latent, latent)
        nn.init.eye_(self.keep.weight)  # initially states persist
        nn.init.zeros_(self.keep.bias)

    def forward(self, z: Tensor) -> Normal:
        gate, move = torch.sigmoid(self.gate(z)), self.move(z)
        mean = (1 - gate) * self.keep(z) + gate * move
        return mean, _spread(self.spread(torch.relu(move)))


class Emission(nn.Module):
    """p(x_t | z_t)."""

    def __init__(self, latent: int, hidden: int, workers: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.mean = nn.Linear(hidden, workers)
        self.spread = nn.Linear(hidden, workers)

    def forward(self, z: Tensor) -> Normal:
        hidden = self.hidden(z)
        return self.mean(hidden), _spread(self.spread(hidden))


class Guide(nn.Module):
    """q(z_t | z_{t-1}, x_{t:L}): an RNN reads the window from its end (Krishnan et al., DKS).

    The true posterior depends on the same: given z_{t-1}, earlier x carry no information.
    """

    def __init__(self, latent: int, hidden: int, workers: int) -> None:
        super().__init__()
        self.read = nn.Linear(workers, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.carry = nn.Linear(latent, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.spread = nn.Linear(hidden, latent)
        self.start = nn.Parameter(torch.zeros(latent))

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw z; return it with mean and standard deviation of each step, shapes (K, L, D).

        noise: Standard normal, shape (K, L, D); K = B, or any K for one window (B = 1).
        """
        seen = self.rnn(self.read(x).flip(1))[0].flip(1)
        z = self.start.expand(len(noise), -1)
        steps = []
        for t in range(x.shape[1]):
            combined = 0.5 * (torch.tanh(self.carry(z)) + seen[:, t])
            mean, std = self.mean(combined), _spread(self.spread(combined))
            z = mean + std * noise[:, t]
            steps.append((z, mean, std))
        states, means, stds = zip(*steps, strict=True)
        return torch.stack(states, 1), torch.stack(means, 1), torch.stack(stds, 1)


class DeepMarkovNetwork(nn.Module):
    """All networks, and the distribution of the first state of a window."""

    def __init__(self, workers: int, latent: int, hidden: int) -> None:
        super().__init__()
        self.transition = Transition(latent, hidden)
        self.emission = Emission(latent, hidden, workers)
        self.guide = Guide(latent, hidden, workers)
        self.first_mean = nn.Parameter(torch.zeros(latent))
        self.first_spread = nn.Parameter(torch.zeros(latent))

    @property
    def latent(self) -> int:
        return len(self.first_mean)

    def first(self) -> Normal:
        """Return p(z) of an iteration without a known past."""
        return self.first_mean, _spread(self.first_spread)

    def bound(self, x: Tensor, seen: Tensor, noise: Tensor, weight: float = 1.0) -> Tensor:
        """Return a lower bound of ln p(x), the paper's ELBO, with one draw per window, shape (B,).

        The divergence of guide and prior is exact given z_{t-1}; `weight` is its factor, for
        annealing. The guide reads `seen`; it is a bound whether that is x or a filter's view of
        it. noise: standard normal, shape (B, L, D).
        """
        z, mean, std = self.guide(seen, noise)
        moved_mean, moved_std = self.transition(z[:, :-1])
        first_mean, first_std = (part.expand(len(z), 1, -1) for part in self.first())
        prior_mean = torch.cat([first_mean, moved_mean], 1)
        prior_std = torch.cat([first_std, moved_std], 1)
        likelihood = log_density(x, *self.emission(z)).sum((1, 2))
        return likelihood - weight * divergence(mean, std, prior_mean, prior_std).sum((1, 2))

    def ahead(self, x: Tensor, count: int, generator: torch.Generator) -> Normal:
        """Predict the iteration after a window: `count` components, shapes (count, N).

        x: Shape (L, N); L = 0 before the first iteration.
        """
        shape = count, len(x) + 1, self.latent
        noise = torch.randn(shape, generator=generator, dtype=torch.float32)
        if len(x):
            z, _, _ = self.guide(x[None], noise[:, :-1])
            mean, std = self.transition(z[:, -1])
        else:
            mean, std = self.first()
        following: Normal = self.emission(mean + std * noise[:, -1])
        return following
