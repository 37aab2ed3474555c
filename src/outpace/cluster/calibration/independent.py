"""Fits of laws with independent run times, by likelihood.

Each law is fitted with a factor for each worker, estimated as suits the law and shrunk towards 1:
see `factors`. Fits are compared by Schwarz's criterion, BIC = k ln n - 2 ln L (Schwarz, Estimating
the dimension of a model, Annals of Statistics 6, 1978), with k parameters and n times; the smallest
is the best. Shrunk factors count as their effective number of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy.stats

from outpace.cluster.calibration import Floats, Ints
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

_STEADY: Final = 1e-3  # standard deviation over mean below which times count as constant
_FEWEST_EVALUATIONS: Final = 8  # fewer do not tell a law, and have their mean
_Fitted = tuple[ServiceLaw, float, int]  # law, ln L, parameters


@dataclass(frozen=True, slots=True)
class Fit:
    """A law, and how well it describes the times that it was fitted to.

    Args:
        bic: Schwarz's criterion; -infinity for times that do not vary.
        errors: Relative standard errors of the law's parameters.
    """

    law: ServiceLaw
    bic: float
    errors: Errors


def independent_fits(seconds: Floats) -> list[Fit]:
    """Return the fits of all laws with independent run times, the best first.

    Args:
        seconds: Shape (T, N), in s, positive; NaN where a worker was not there. A single column
            is fitted without factors.
    """
    iteration, worker = np.nonzero(~np.isnan(seconds))
    times = seconds[iteration, worker]
    fits = []
    for levels_of, laws in _LAWS:
        factors = _factors(times, worker, seconds.shape[1], levels_of)
        fits += _fits(times, worker, factors, laws)
    return sorted(fits, key=lambda fit: fit.bic)


def service_law(seconds: Floats) -> ServiceLaw:
    """Return the law that describes these times best.

    Args:
        seconds: In s, positive. Shape (n,); or (T, N), of N nodes that have factors, with NaN where
            there is no time.
    """
    return independent_fits(seconds.reshape(len(seconds), -1))[0].law


def evaluation_law(seconds: Floats) -> ServiceLaw | None:
    """Return the law of the times of evaluations; None if there are none.

    It has a factor for each worker, if they differ. Workers that never evaluated have 1.

    Args:
        seconds: Of each evaluation, in s, shape (S, N); NaN where a worker did not evaluate.
    """
    known = ~np.isnan(seconds)
    if known.sum() < _FEWEST_EVALUATIONS:
        return Constant(mean_s=float(seconds[known].mean())) if known.any() else None
    workers = np.flatnonzero(known.any(axis=0))
    law = service_law(seconds[:, workers])
    if not law.factors:
        return law
    factors = np.ones(seconds.shape[1])
    factors[workers] = law.factors
    return replace(law, factors=tuple(factors.tolist()))


# -- factors of workers --------------------------------------------------------------

_LevelsOf = Callable[[list[Floats]], tuple[Floats, Floats]]


def _factors(times: Floats, worker: Ints, workers: int, levels_of: _LevelsOf) -> Factors:
    if workers == 1 or len(times) <= workers:  # without repetitions workers are taken to be alike
        return Factors(np.ones(workers), np.zeros(workers), np.zeros(workers))
    return shrunk_factors(*levels_of([times[worker == n] for n in range(workers)]))


def _of_means(times: list[Floats]) -> tuple[Floats, Floats]:
    """Return the logarithms of the workers' means, and their standard errors."""
    means = np.array([part.mean() for part in times])
    deviation = _deviation([part / mean for part, mean in zip(times, means, strict=True)])
    return np.log(means), deviation / _roots(times)


def _of_logs(times: list[Floats]) -> tuple[Floats, Floats]:
    """Return the means of the logarithms of the workers' times, and their standard errors."""
    logs = [np.log(part) for part in times]
    return np.array([part.mean() for part in logs]), _deviation(logs) / _roots(times)


def _of_least(times: list[Floats]) -> tuple[Floats, Floats]:
    """Return the logarithms of the workers' least times, and their standard errors.

    The least of n exponential times exceeds their minimum by mean/n on average, and has that
    standard deviation.
    """
    least = np.array([part.min() for part in times])
    means = np.array([part.mean() for part in times])
    return np.log(least), float((means / least - 1).mean()) / _roots(times) ** 2


def _deviation(parts: list[Floats]) -> float:
    """Return the standard deviation within the workers, all together."""
    free = sum(len(part) - 1 for part in parts)
    return math.sqrt(sum(float(part.var()) * len(part) for part in parts) / max(1, free))


def _roots(times: list[Floats]) -> Floats:
    return np.sqrt([float(len(part)) for part in times])


# -- laws ----------------------------------------------------------------------------


def _fits(times: Floats, worker: Ints, factors: Factors, laws: Sequence[_FitLaw]) -> list[Fit]:
    """Return the fits of these laws to times that are divided by the factors."""
    of_time = factors.values[worker]
    times = times / of_time
    mean, count = float(times.mean()), len(times)
    of_workers = tuple(factors.errors.tolist()) if factors.rounded else ()
    error = float(times.std()) / mean / math.sqrt(count)
    if times.std() < _STEADY * mean:
        # A density does not exist.
        law: ServiceLaw = Constant(mean_s=mean, factors=factors.rounded)
        return [Fit(law, -math.inf, Errors(mean_s=error))]
    change = float(np.log(of_time).sum())
    found = []
    for fit in laws:
        law, likelihood, parameters = fit(times)
        bic = (parameters + factors.parameters) * math.log(count) - 2 * (likelihood - change)
        # Of a standard deviation: 1/sqrt(2 n), for a normal law of the times or their logarithms.
        spread = 1 / math.sqrt(2 * count) if isinstance(law, Normal | Lognormal) else 0.0
        of_mean = 1 / math.sqrt(count) if isinstance(law, ShiftedExponential) else error
        errors = Errors(mean_s=of_mean, cv=spread, factors=of_workers)
        found.append(Fit(replace(law, factors=factors.rounded), bic, errors))
    return found


def _normal(times: Floats) -> _Fitted:
    mean, deviation = float(times.mean()), float(times.std())
    likelihood = scipy.stats.norm.logpdf(times, mean, deviation).sum()
    return Normal(mean_s=mean, cv=deviation / mean), likelihood, 2


def _lognormal(times: Floats) -> _Fitted:
    logs = np.log(times)
    deviation = float(logs.std())
    # The mean is that of the sample: run times add up, whatever their law.
    law = Lognormal(mean_s=float(times.mean()), cv=math.sqrt(math.expm1(deviation**2)))
    return law, scipy.stats.norm.logpdf(logs, logs.mean(), deviation).sum() - logs.sum(), 2


def _exponential(times: Floats) -> _Fitted:
    mean = float(times.mean())
    return Exponential(mean_s=mean), scipy.stats.expon.logpdf(times, scale=mean).sum(), 1


def _shifted_exponential(times: Floats) -> _Fitted:
    shift, mean = scipy.stats.expon.fit(times)
    likelihood = scipy.stats.expon.logpdf(times, shift, mean).sum()
    return ShiftedExponential(mean_s=float(mean), shift_s=float(shift)), likelihood, 2


_FitLaw = Callable[[Floats], _Fitted]
_LAWS: Final[tuple[tuple[_LevelsOf, tuple[_FitLaw, ...]], ...]] = (
    (_of_means, (_normal, _exponential)),
    (_of_logs, (_lognormal,)),
    (_of_least, (_shifted_exponential,)),
)
