"""Draws from the tail of a normal distribution, precisely even far from the mean."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

_FAR: Final = 20.0  # standard deviations; beyond them erfc is near the smallest float64
_BARELY: Final = -5.0  # a lower bound cuts off less than one draw in a million


def normal_above(low: Tensor, uniform: Tensor) -> Tensor:
    """Return standard normal draws greater than `low`, of the same shape, by inversion.

    They are -Φ⁻¹(u Φ(-low)) for independent uniform draws u from (0, 1), float64. For z above 20,
    Φ(-z) is about φ(z)/z, so that z² = low² - 2 ln u, with an error below 1e-4.
    """
    low = low.double()
    tail = 0.5 * torch.special.erfc(low.clamp(max=_FAR) * math.sqrt(0.5))  # ndtr cancels here
    near = -torch.special.ndtri(tail * uniform)
    far = (low.square() - 2.0 * uniform.log()).sqrt()
    return torch.maximum(torch.where(low > _FAR, far, near), low)


def draw_above(low: Tensor, generator: torch.Generator) -> Tensor:
    """Draw standard normals greater than `low`, entry by entry, in float64.

    Most bounds cut off almost nothing, so inversion is used only for the others.
    """
    draws = torch.randn(low.shape, generator=generator, dtype=torch.float64)
    cut = low > _BARELY
    if not cut.any():
        return torch.maximum(draws, low)
    bounds = low[cut]
    # In the open interval (0, 1).
    uniform = torch.rand(bounds.shape, generator=generator, dtype=torch.float64)
    draws[cut] = normal_above(bounds, uniform.clamp(min=torch.finfo(torch.float64).tiny))
    return torch.maximum(draws, low)
