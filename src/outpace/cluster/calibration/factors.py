"""Estimates the factors of workers (shrunk towards their mean) and of servers.

A worker's level, the logarithm of its mean time, is known with a standard error s. The estimates of
the levels are more spread out than the levels themselves, because the errors add to the spread; so
the worker with the largest estimate is on average not as slow as the estimate says. If the levels
have the variance tau² about their mean m, the empirical Bayes estimate of a level x is

    m + B (x - m)  with  B = tau² / (tau² + s²)

(Efron, Morris: Data analysis using Stein's estimator and its generalizations, Journal of the
American Statistical Association 70, 1975). tau² is estimated by the method of moments from Q = sum
of w (x - m)² with w = 1/s²: tau² = (Q - (N - 1)) / (sum of w - sum of w² / sum of w), and 0 if the
levels differ only by chance (DerSimonian, Laird: Meta-analysis in clinical trials, Controlled
Clinical Trials 7, 1986, equation 8).

The error of a shrunk level is s √B. If B is 0, workers are alike, and the error equals the error of
m, which is the error of the law's mean.

A server has many times, so its mean is known well. Servers get factors only if the slowest and the
fastest clearly differ; these factors are not shrunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.cluster.calibration import Floats

_ERRORS: Final = 4  # standard errors by which the slowest and the fastest server must differ
# least relative difference of the slowest server from the fastest, as for links
_LEAST_DIFFERENCE: Final = 1.25
_LEAST: Final = 1e-3  # factor of a server whose mean time is not clearly above 0


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The factors of the workers, with mean 1.

    Args:
        values: Factor of each worker, shape (N,).
        errors: Relative standard errors, shape (N,).
        kept: Share of each level's distance from the mean that is kept, B; shape (N,).
    """

    values: Floats
    errors: Floats
    kept: Floats

    @property
    def parameters(self) -> float:
        """Effective number of parameters: N - 1 if nothing is shrunk, 0 if workers are alike.

        It is the trace of the matrix that maps the observations to the estimates (Hodges, Sargent:
        Counting degrees of freedom in hierarchical and other richly-parameterised models,
        Biometrika 88, 2001), without the mean.
        """
        return float(self.kept.sum()) * (len(self.kept) - 1) / len(self.kept)

    @property
    def rounded(self) -> tuple[float, ...]:
        """The values with four digits; empty if workers are alike."""
        rounded = tuple(float(f"{value:.4g}") for value in self.values.tolist())
        return rounded if len(set(rounded)) > 1 else ()


def shrunk_factors(levels: Floats, errors: Floats) -> Factors:
    """Return the factors of workers with these levels.

    Args:
        levels: Logarithms of the workers' times, shape (N,).
        errors: Standard errors of the levels, shape (N,); 0 if a level is exact.
    """
    errors = np.maximum(errors, 1e-12)
    weight = errors**-2
    tau2 = between(levels, weight)
    total = 1 / (tau2 + errors**2)
    middle = float((total * levels).sum() / total.sum())
    kept = tau2 * total
    values = np.exp(middle + kept * (levels - middle))
    return Factors(values / values.mean(), errors * np.sqrt(kept), kept)


def between(levels: Floats, weight: Floats) -> float:
    """Return the variance of the levels that their errors do not explain.

    weight: the inverse of the variance of each error.
    """
    middle = (weight * levels).sum() / weight.sum()
    excess = (weight * (levels - middle) ** 2).sum() - (len(levels) - 1)
    scale = weight.sum() - (weight**2).sum() / weight.sum()
    return max(0.0, float(excess / scale)) if scale > 0 else 0.0


def server_factors(levels_s: Floats, errors_s: Floats) -> tuple[float, ...]:
    """Return the factor of each server, with mean 1; empty if servers are alike or not known.

    They are not known if the mean of all servers is not above 0. This can happen by chance if the
    times are differences of recorded times.

    Args:
        levels_s: Mean time of each server, shape (M,); NaN if it is not known.
        errors_s: Standard error of each mean time, shape (M,).
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
