"""Draws from the upper tail of the normal distribution, precise however far out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FAR = 20.0  # beyond it the leading terms of the tail are precise enough


def normal_above(low: Tensor, uniform: Tensor) -> Tensor:
    """Return standard normal draws greater than `low`, of the same shape, by inversion.

    They are -Φ⁻¹(u Φ(-low)); far out from Φ(-z) ~ φ(z) / z, so that
    z² + 2 ln z = low² + 2 ln low - 2 ln u, solved by one step.

    Args:
        uniform: Independent draws u from (0, 1), float64.
    """
    low = low.double()
    tail = 0.5 * torch.special.erfc(low.clamp(max=_FAR) * math.sqrt(0.5))  # ndtr cancels here
    near = -torch.special.ndtri(tail * uniform)
    base = low.clamp(min=1.0)
    first = (base.square() - 2.0 * uniform.log()).sqrt()
    far = (first.square() - 2.0 * (first / base).log()).sqrt()
    return torch.maximum(torch.where(low > _FAR, far, near), low)
