"""The law of the time that a script's evaluations take, from its untimed spans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.independent import service_law
from outpace.cluster.calibration.run_times import distance_of
from outpace.cluster.laws import Constant, ServiceLaw
from outpace.support.randomness import generator

_LEAST: Final = 8  # evaluations; fewer do not tell a law, and have their mean
_DRAWN: Final = 40_000  # times drawn from a law, all workers together


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationFit:
    """The law of evaluations.

    Args:
        law: With a factor for each worker, if they differ. Workers that never evaluated have 1.
        count: Number of recorded evaluations.
        distance: Kolmogorov distance of recorded and fitted times, 0 to 1.
    """

    law: ServiceLaw
    count: int
    distance: float


def fit_evaluations(seconds: Floats) -> EvaluationFit | None:
    """Return the law of these times; None if there are none.

    Args:
        seconds: The time of each evaluation, in s, shape (S, N) for N workers; NaN where a worker
            did not evaluate.
    """
    known = ~np.isnan(seconds)
    count = int(known.sum())
    if not count:
        return None
    workers = np.flatnonzero(known.any(axis=0))
    law: ServiceLaw = Constant(mean_s=float(seconds[known].mean()))
    if count >= _LEAST:
        law = service_law(seconds[:, workers])
    factors = np.ones(seconds.shape[1])
    if law.factors:
        factors[workers] = law.factors
        law = replace(law, factors=tuple(factors.tolist()))
    each = _DRAWN // count + 1
    multiples = law.shape()(generator(0, "goodness of fit"), each * count)
    of_worker = np.tile(factors[np.nonzero(known)[1]], each)
    return EvaluationFit(law, count, distance_of(seconds, law.mean_s * of_worker * multiples))
