"""Fits laws with independent run times by maximum likelihood.

Each law has a factor for each worker, which follows from the worker's mean time and is shrunk
towards 1: see `factors`. Fits are compared by Schwarz's criterion, BIC = k ln n - 2 ln L (Schwarz,
Estimating the dimension of a model, Annals of Statistics 6, 1978), with k parameters and n times;
the smallest is the best. Shrunk factors count as their effective number of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy.stats

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.factors import Factors, shrunk_factors
from outpace.cluster.laws import (
    Constant,
    Errors,
    Exponential,
    Lognormal,
    Normal,
    ServiceLaw,
    ShiftedExponential,
)

_STEADY: Final = 1e-3  # ratio of standard deviation to mean below which times count as constant
_FEWEST_EVALUATIONS: Final = 8  # with fewer times the law is constant


@dataclass(frozen=True, slots=True)
class Fit:
    """A law, and how well it describes the times that were fitted.

    Args:
        bic: Schwarz's criterion; -infinity if the times do not vary.
        errors: Relative standard errors of the law's parameters.
    """

    law: ServiceLaw
    bic: float
    errors: Errors


def independent_fits(seconds: Floats) -> list[Fit]:
    """Return the fits of all laws with independent run times, the best first.

    Args:
        seconds: Run times in s, shape (T, N), positive; NaN where a worker was absent. A single
            column is fitted without factors.
    """
    iteration, worker = np.nonzero(~np.isnan(seconds))
    times = seconds[iteration, worker]
    factors = _factors([times[worker == n] for n in range(seconds.shape[1])])
    of_time = factors.values[worker]
    times = times / of_time
    count, mean_s, deviation_s = len(times), float(times.mean()), float(times.std())
    of_workers = tuple(factors.errors.tolist()) if factors.rounded else ()
    error = deviation_s / mean_s / math.sqrt(count)
    if deviation_s < _STEADY * mean_s:  # constant times have no density
        steady = Constant(mean_s=mean_s, factors=factors.rounded)
        return [Fit(steady, -math.inf, Errors(mean_s=error, factors=of_workers))]
    change = float(np.log(of_time).sum())
    fits = []
    for law, likelihood, parameters in _laws(times):
        bic = (parameters + factors.parameters) * math.log(count) - 2 * (likelihood - change)
        # The relative error of a standard deviation is 1/sqrt(2 n), for a normal law of the times
        # or of their logarithms.
        spread = 1 / math.sqrt(2 * count) if isinstance(law, Normal | Lognormal) else 0.0
        of_mean = 1 / math.sqrt(count) if isinstance(law, ShiftedExponential) else error
        errors = Errors(mean_s=of_mean, cv=spread, factors=of_workers)
        fits.append(Fit(replace(law, factors=factors.rounded), bic, errors))
    return sorted(fits, key=lambda fit: fit.bic)


def service_law(seconds: Floats) -> ServiceLaw:
    """Return the law that fits these times best. seconds: in s, positive, shape (n,)."""
    return independent_fits(seconds[:, None])[0].law


def evaluation_law(seconds: Floats) -> ServiceLaw | None:
    """Return the law of the times of evaluations; None if there are none.

    Args:
        seconds: Duration of each evaluation, in s; NaN if a worker did not evaluate.
    """
    known = seconds[~np.isnan(seconds)]
    if len(known) < _FEWEST_EVALUATIONS:
        return Constant(mean_s=float(known.mean())) if len(known) else None
    return service_law(known)


def _factors(times: list[Floats]) -> Factors:
    """Return the factors of workers with these times."""
    workers, count = len(times), sum(map(len, times))
    if workers == 1 or count <= workers:  # without repeated times, workers count as alike
        return Factors(np.ones(workers), np.zeros(workers), np.zeros(workers))
    means = np.array([part.mean() for part in times])
    within = np.concatenate([part / mean - 1 for part, mean in zip(times, means, strict=True)])
    deviation = math.sqrt(float((within**2).sum()) / (count - workers))
    return shrunk_factors(np.log(means), deviation / np.sqrt([len(part) for part in times]))


def _laws(times: Floats) -> Iterator[tuple[ServiceLaw, float, int]]:
    """Yield the laws that fit these times, with ln L and the number of their parameters."""
    stats = scipy.stats
    # The mean is the sample mean, because the sum of the run times must be right under any law.
    mean_s, deviation_s = float(times.mean()), float(times.std())
    likelihood = stats.norm.logpdf(times, mean_s, deviation_s).sum()
    yield Normal(mean_s=mean_s, cv=deviation_s / mean_s), likelihood, 2
    spread, _, median_s = stats.lognorm.fit(times, floc=0)
    likelihood = stats.lognorm.logpdf(times, spread, scale=median_s).sum()
    yield Lognormal(mean_s=mean_s, cv=math.sqrt(math.expm1(spread**2))), likelihood, 2
    yield Exponential(mean_s=mean_s), stats.expon.logpdf(times, scale=mean_s).sum(), 1
    shift_s, rest_s = stats.expon.fit(times)
    likelihood = stats.expon.logpdf(times, shift_s, rest_s).sum()
    yield ShiftedExponential(mean_s=float(rest_s), shift_s=float(shift_s)), likelihood, 2
