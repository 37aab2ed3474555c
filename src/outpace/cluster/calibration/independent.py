"""Fits of laws with independent run times, by likelihood.

Each law is fitted twice: all workers alike, and with a factor for each worker. Fits are compared by
Schwarz's criterion, BIC = k ln n - 2 ln L (Schwarz, Estimating the dimension of a model, Annals of
Statistics 6, 1978), with k parameters and n times; the smallest is the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.laws import (
    Constant,
    Exponential,
    Lognormal,
    Normal,
    ServiceLaw,
    ShiftedExponential,
)

Floats = NDArray[np.float64]
_STEADY: Final = 1e-3  # standard deviation over mean below which times count as constant
_Fitted = tuple[ServiceLaw, float, int]  # law, ln L, parameters


@dataclass(frozen=True, slots=True)
class Fit:
    """A law, and how well it describes the times that it was fitted to.

    Args:
        bic: Schwarz's criterion; -infinity for times that do not vary.
    """

    law: ServiceLaw
    bic: float


def independent_fits(seconds: Floats) -> list[Fit]:
    """Return the fits of all laws with independent run times, the best first.

    Args:
        seconds: Shape (T, N), in s, positive; NaN where a worker was not there. A single column
            is fitted without factors.
    """
    iteration, worker = np.nonzero(~np.isnan(seconds))
    times, workers = seconds[iteration, worker], seconds.shape[1]
    means = np.array([times[worker == n].mean() for n in range(workers)])
    alike = [_alike(times, np.ones(1), 0)]
    if workers > 1:
        alike.append(_with_factors(times, worker, means))
        alike.append(_with_factors(times, worker, _geometric(times, worker, workers)))
        least = np.array([times[worker == n].min() for n in range(workers)])
        alike.append(_with_factors(times, worker, least))
    fits = [fit for each in alike for fit in each]
    return sorted(fits, key=lambda fit: fit.bic)


def service_law(seconds: Floats) -> ServiceLaw:
    """Return the law that describes these service times best; shape (n,), in s, positive."""
    return independent_fits(seconds[:, None])[0].law


def _geometric(times: Floats, worker: NDArray[np.int64], workers: int) -> Floats:
    return np.array([math.exp(np.log(times[worker == n]).mean()) for n in range(workers)])


def _with_factors(times: Floats, worker: NDArray[np.int64], of_worker: Floats) -> list[Fit]:
    """Return fits with factors in proportion to `of_worker`, with mean 1."""
    factors = of_worker / of_worker.mean()
    fits = _alike(times / factors[worker], factors[worker], len(factors) - 1)
    rounded = tuple(float(f"{factor:.4g}") for factor in factors)
    return [Fit(replace(fit.law, factors=rounded), fit.bic) for fit in fits]


def _alike(times: Floats, factors: Floats, more: int) -> list[Fit]:
    """Return the fits of times that were divided by factors, with `more` parameters for these."""
    mean = float(times.mean())
    if times.std() < _STEADY * mean:
        # A density does not exist. All workers alike win, if they are: they come first.
        return [Fit(Constant(mean_s=mean), -math.inf)]
    count, change = len(times), float(np.log(np.broadcast_to(factors, times.shape)).sum())
    found = []
    for fit in _FITS:
        law, likelihood, parameters = fit(times)
        bic = (parameters + more) * math.log(count) - 2 * (likelihood - change)
        found.append(Fit(law, bic))
    return found


def _normal(times: Floats) -> _Fitted:
    mean, deviation = float(times.mean()), float(times.std())
    return Normal(mean_s=mean, cv=deviation / mean), _gaussian(len(times), deviation), 2


def _lognormal(times: Floats) -> _Fitted:
    logs = np.log(times)
    deviation = float(logs.std())
    # The mean is that of the sample: run times add up, whatever their law.
    law = Lognormal(mean_s=float(times.mean()), cv=math.sqrt(math.expm1(deviation**2)))
    return law, _gaussian(len(times), deviation) - float(logs.sum()), 2


def _exponential(times: Floats) -> _Fitted:
    mean = float(times.mean())
    return Exponential(mean_s=mean), -len(times) * (math.log(mean) + 1), 1


def _shifted_exponential(times: Floats) -> _Fitted:
    shift = float(times.min())
    mean = float(times.mean()) - shift
    law = ShiftedExponential(mean_s=mean, shift_s=shift)
    return law, -len(times) * (math.log(mean) + 1), 2


_FITS: Final[tuple[Callable[[Floats], _Fitted], ...]] = (
    _normal,
    _lognormal,
    _exponential,
    _shifted_exponential,
)


def _gaussian(count: int, deviation: float) -> float:
    """Return ln L of a normal sample at its own mean and standard deviation."""
    return -count * (0.5 * math.log(2 * math.pi) + math.log(deviation) + 0.5)
