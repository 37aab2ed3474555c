"""Regret bounds of bounded staleness (FluentPS, section III-E).

For SGD with T updates by N workers, on convex L-Lipschitz losses over parameters with
½‖w − w'‖² ≤ F² for any two w, w', the mean regret is at most

    4 F L sqrt(2 (s + 1) N / T)      SSP with staleness bound s (proposition 1; Ho et al. 2013)
    4 F L sqrt(2 (s + 1/c) N / T)    PSSP that blocks beyond s with probability c (theorem 1)
    4 F L sqrt(2 (s + 2/α) N / T)    PSSP with probability α / (1 + e^(s−k)) at lead k (theorem 2)

where the last two bounds hold in expectation. With probability c a worker gets 1/c − 1
iterations beyond s on average before it is blocked; α / (1 + e^(s−k)) is at least α/2.
`equivalent_staleness` relates SSP and PSSP with equal bounds. All functions raise ValueError
for arguments out of range.
"""

from __future__ import annotations

import math

from outpace.support.checks import require


def ssp_regret(
    *, distance: float, lipschitz: float, staleness: float, workers: int, updates: int
) -> float:
    """Return the bound of SSP, or of BSP with s = 0; `staleness` may have a fraction."""
    _require_staleness(staleness)
    return _bound(distance, lipschitz, staleness + 1, workers, updates)


def pssp_regret(
    *,
    distance: float,
    lipschitz: float,
    staleness: float,
    block_probability: float,
    workers: int,
    updates: int,
) -> float:
    """Return the bound of PSSP with a constant probability c in (0, 1]; c = 1 is SSP."""
    same = equivalent_staleness(staleness, block_probability)
    return _bound(distance, lipschitz, same + 1, workers, updates)


def dynamic_pssp_regret(
    *,
    distance: float,
    lipschitz: float,
    staleness: float,
    alpha: float,
    workers: int,
    updates: int,
) -> float:
    """Return the bound of dynamic PSSP with a constant α in (0, 1]."""
    _require_staleness(staleness)
    require(0 < alpha <= 1, "alpha", "above 0 and at most 1", alpha)
    return _bound(distance, lipschitz, staleness + 2 / alpha, workers, updates)


def equivalent_staleness(staleness: float, block_probability: float) -> float:
    """Return s' = s + 1/c − 1: SSP with s' has the regret bound of PSSP with s and c.

    s' is the lead that a worker reaches on average before it is blocked.
    """
    _require_staleness(staleness)
    require(
        0 < block_probability <= 1,
        "block_probability",
        "above 0 and at most 1: at 0 there is no bound",
        block_probability,
    )
    return staleness + 1 / block_probability - 1


def _bound(distance: float, lipschitz: float, spread: float, workers: int, updates: int) -> float:
    for key, value in (("distance", distance), ("lipschitz", lipschitz)):
        require(0 < value < math.inf, key, "positive and finite", value)
    for key, count in (("workers", workers), ("updates", updates)):
        require(count > 0, key, "at least 1", count)
    return 4 * distance * lipschitz * math.sqrt(2 * spread * workers / updates)


def _require_staleness(staleness: float) -> None:
    require(0 <= staleness < math.inf, "staleness", "at least 0 and finite", staleness)
