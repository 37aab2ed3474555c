"""Normal distributions: densities, divergence, and tails, precise however far out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FAR = 20.0  # standard deviations; beyond them erfc is near the smallest float64
_BARELY = -5.0  # a lower bound cuts off less than one draw in a million


def log_density(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return ln N(x; mean, std²), entry by entry."""
    return -0.5 * ((x - mean) / std).square() - std.log() - 0.5 * math.log(2 * math.pi)


def divergence(mean: Tensor, std: Tensor, to_mean: Tensor, to_std: Tensor) -> Tensor:
    """Return KL(N(mean, std²) ‖ N(to_mean, to_std²)), entry by entry."""
    ratio = (std / to_std).square()
    return 0.5 * (ratio + ((mean - to_mean) / to_std).square() - 1 - ratio.log())


def log_above(low: Tensor) -> Tensor:
    """Return ln P(Z > low) = ln Φ(-low) of a standard normal Z, in float64.

    Beyond 20 it is continued by -low²/2, since Mills' ratio is nearly constant there.
    """
    low = low.double()
    tail: Tensor = 0.5 * torch.special.erfc(low.clamp(max=_FAR) * math.sqrt(0.5))
    return tail.log() - 0.5 * (low.clamp(min=_FAR).square() - _FAR**2)


def normal_above(low: Tensor, uniform: Tensor) -> Tensor:
    """Return standard normal draws greater than `low`, of the same shape, by inversion.

    They are -Φ⁻¹(u Φ(-low)) for independent uniform draws u from (0, 1), float64; far out from
    Φ(-z) ~ φ(z) / z, so that z² + 2 ln z = low² + 2 ln low - 2 ln u, solved by one step.
    """
    low = low.double()
    tail = 0.5 * torch.special.erfc(low.clamp(max=_FAR) * math.sqrt(0.5))  # ndtr cancels here
    near = -torch.special.ndtri(tail * uniform)
    base = low.clamp(min=1.0)
    first = (base.square() - 2.0 * uniform.log()).sqrt()
    far = (first.square() - 2.0 * (first / base).log()).sqrt()
    return torch.maximum(torch.where(low > _FAR, far, near), low)


def draw_above(low: Tensor, generator: torch.Generator) -> Tensor:
    """Draw standard normals greater than `low`, entry by entry, in float64.

    Most bounds cut off next to nothing, so draws are inverted only where it matters.
    """
    draws = torch.randn(low.shape, generator=generator, dtype=torch.float64)
    cut = low > _BARELY
    bounds = low[cut]
    # In the open interval (0, 1).
    uniform = torch.rand(bounds.shape, generator=generator, dtype=torch.float64)
    draws[cut] = normal_above(bounds, uniform.clamp(min=torch.finfo(torch.float64).tiny))
    return torch.maximum(draws, low)
