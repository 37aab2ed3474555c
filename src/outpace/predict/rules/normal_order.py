"""What the order statistics of normal times are expected to be."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch

from outpace.predict.recorded.table import Seconds
from outpace.support.checks import require

_APPROXIMATE: Final = 9  # from this sample size on; at 8 the outermost would be 1.7 % off
_GRID: Final = 4001  # of the integral, over ± 10: exact to twelve digits


def normal_scores(n: int) -> Seconds:
    """E[z_(j)] for j = 1..n of n independent standard normal variables, shape (n,).

    Φ⁻¹((j − π/8) / (n − π/4 + 1)) (Elfving 1947, as BDSGD has it) within 1.5 %; of a few by
    the integral of z times the density of z_(j).
    """
    require(n >= 1, "n", "at least 1", n)
    if n >= _APPROXIMATE:
        j = torch.arange(1, n + 1, dtype=torch.float64)
        scores = torch.special.ndtri((j - math.pi / 8) / (n - math.pi / 4 + 1))
        return np.asarray(scores, dtype=np.float64)
    z = torch.linspace(-10, 10, _GRID, dtype=torch.float64)
    below, density = torch.special.ndtr(z).numpy(), (-z.square() / 2).exp().numpy()
    at, step = z.numpy(), 20 / (_GRID - 1) / math.sqrt(2 * math.pi)
    terms = [
        j * math.comb(n, j) * at * density * below ** (j - 1) * below[::-1] ** (n - j)
        for j in range(1, n + 1)
    ]
    return np.array([term.sum() * step for term in terms])
