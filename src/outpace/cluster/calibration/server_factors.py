"""Factors of servers whose work takes clearly longer or shorter than that of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.cluster.calibration.independent import Floats

_ERRORS: Final = 4  # standard errors by which the slowest and the fastest must differ
_LEAST_DIFFERENCE: Final = 1.25  # of the slowest from the fastest, as of links
_LEAST: Final = 1e-3  # factor of a server whose time is not more than chance


def server_factors(levels_s: Floats, errors_s: Floats) -> tuple[float, ...]:
    """Return the factor of each server, with mean 1; empty if servers are alike, or not known.

    So if the mean of all is not above 0, which by chance the mean of a time may be that is found as
    a difference.

    Args:
        levels_s: Mean time of each server, shape (M,); NaN if it is not known.
        errors_s: Their standard errors, shape (M,).
    """
    if len(levels_s) < 2 or np.isnan(levels_s).any() or levels_s.mean() <= 0:
        return ()
    slow, fast = int(levels_s.argmax()), int(levels_s.argmin())
    apart_s = float(levels_s[slow] - levels_s[fast])
    by_chance_s = _ERRORS * float(np.hypot(errors_s[slow], errors_s[fast]))
    if apart_s <= by_chance_s or levels_s[slow] < _LEAST_DIFFERENCE * levels_s[fast]:
        return ()
    factors = np.maximum(levels_s / levels_s.mean(), _LEAST)
    return tuple(float(f"{factor:.4g}") for factor in (factors / factors.mean()).tolist())


def mean_and_error(times_s: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the mean of each server's times, and their standard errors; NaN without two times."""
    means, errors = np.full((2, len(times_s)), np.nan)
    for server, times in enumerate(times_s):
        if len(times) > 1:
            means[server] = times.mean()
            errors[server] = times.std(ddof=1) / np.sqrt(len(times))
    return means, errors
