"""The law of the run times of a run's workers, and how well it describes them.

The choice, in this order:

1. The law with independent run times whose BIC is the smallest (`independent`); workers' factors
   are shrunk towards 1 (`factors`).
2. If this law does not reproduce the recorded run times, for example because consecutive times of a
   worker are correlated: the recorded run times themselves, replayed (`compute: {kind: trace}`).

A law reproduces the recorded run times if the Kolmogorov distance of the pooled times, the means of
the k-th fastest of the N workers for k = 1..N, and the correlation of a worker's times from one
iteration to the next are within the limits below. A test of significance would refuse every law if
the run is long enough, even if the law fits very well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy.stats

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.factors import between
from outpace.cluster.calibration.independent import independent_fits
from outpace.cluster.laws import Errors, ServiceLaw
from outpace.support.randomness import generator

DISTANCE: Final = 0.08  # largest Kolmogorov distance of all run times
DISTANCE_OF_WORKER: Final = 0.16  # largest Kolmogorov distance of the run times of one worker
ORDER: Final = 0.03  # largest relative error of the mean of an order statistic
CORRELATION: Final = 0.15  # largest correlation of a worker's consecutive times
_ERRORS: Final = 3  # standard errors that are allowed if they are larger than the limits above
_BY_CHANCE: Final = 1.5  # divided by √n: n times rarely have a larger distance from their own law
_BY_CHANCE_OF_WORKER: Final = 2.0  # a worker's factor may be off, too
_BATCHES: Final = 10  # for the standard error of a mean of correlated times
_EQUAL: Final = 1e-3  # relative difference of times that count as equal
_DRAWN: Final = 40_000  # run times drawn from a law, all workers together
_WARM_UP: Final = 0.1  # share of a run's iterations that may be left out
_MOST_WARM_UP: Final = 10  # iterations
# Relative standard deviation of a machine's speed between real runs, if a calibration has only one
# run: 33 real runs of 11 strategies had 1.6 % (benchmarks/README.md, Fidelity, real compute).
ASSUMED_CV: Final = 0.015
_TENTHS: Final = 10  # parts of a run whose speeds are compared
_CERTAIN: Final = 0.95  # probability by which they must differ


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Recorded run times of one run.

    Args:
        starts: When each iteration started, in s since the start of the run, shape (T, N).
        seconds: Run times, shape (T, N); NaN where a worker was not there.
    """

    starts: Floats
    seconds: Floats

    @property
    def length_s(self) -> float:
        """Seconds from the start of the first iteration to the end of the last one."""
        return float(np.nanmax(self.starts + self.seconds) - np.nanmin(self.starts))

    def without(self, first: int) -> Recording:
        """Return the recording without its first iterations."""
        return Recording(self.starts[first:], self.seconds[first:])


@dataclass(frozen=True, slots=True, eq=False)
class Goodness:
    """How well run times drawn from a law agree with recorded ones.

    Args:
        distance: Kolmogorov distance of all run times; 0 to 1.
        of_worker: Kolmogorov distance of each worker's run times, shape (N,).
        recorded_order: Mean of the k-th fastest of the N workers, in s, shape (N,).
        fitted_order: The same mean for the run times of the law, in s, shape (N,).
        order_error: Standard errors of the recorded means, shape (N,).
        correlation: Correlation of the logarithms of a worker's consecutive times, from -1 to 1; 0
            for the times of a law.
        count: Number of recorded run times.
        drawn: Run times that the law drew, shape (T', N).
    """

    distance: float
    of_worker: Floats
    recorded_order: Floats
    fitted_order: Floats
    order_error: Floats
    correlation: float
    count: int
    drawn: Floats

    @property
    def order_off(self) -> Floats:
        """Relative error of the means of the order statistics, shape (N,)."""
        return self.fitted_order / self.recorded_order - 1

    def complaints(self) -> list[str]:
        """Describe how the recorded times differ from the law; empty if the law reproduces them."""
        found = []
        error = 1 / np.sqrt(self.count)  # standard error of a correlation of 0
        if self.distance > max(DISTANCE, _BY_CHANCE * error):
            found.append(f"Kolmogorov distance {self.distance:.2f}")
        one_error = np.sqrt(len(self.of_worker) / self.count)  # for the times of a single worker
        worker = int(np.argmax(self.of_worker))
        if self.of_worker[worker] > max(DISTANCE_OF_WORKER, _BY_CHANCE_OF_WORKER * one_error):
            found.append(
                f"Kolmogorov distance {self.of_worker[worker]:.2f} of worker {worker}'s times"
            )
        allowed = np.maximum(ORDER, _ERRORS * self.order_error / self.recorded_order)
        worst = int(np.argmax(np.abs(self.order_off) - allowed))
        if abs(self.order_off[worst]) > allowed[worst]:
            off = 100 * self.order_off[worst]
            found.append(f"the mean of place {worst + 1} of {len(allowed)} is {off:+.1f} % off")
        if abs(self.correlation) > max(CORRELATION, _ERRORS * error):
            found.append(f"correlation {self.correlation:.2f} from one iteration to the next")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeFit:
    """The best law of run times.

    Args:
        law: The best law; None if the recorded times are to be replayed.
        tried: The best law, even if it is not good enough.
        goodness: Goodness of fit of `tried`.
        reasons: Why the recorded times are to be replayed.
        warm_up: Number of iterations at the beginning of each run that were left out.
        iterations: Number of the iterations that were used.
        recorded: Run times of the iterations that all workers finished, in s, shape (T, N).
        errors: Relative standard errors of the law's parameters; None if times are replayed.
        speed_cv: Relative standard deviation of the speed of a further run from the speed of the
            law.
    """

    law: ServiceLaw | None
    tried: ServiceLaw
    goodness: Goodness
    reasons: list[str]
    warm_up: int
    iterations: int
    recorded: Floats
    errors: Errors | None
    speed_cv: float


def fit_run_times(recordings: list[Recording], *, assumed_cv: float = 0.0) -> RunTimeFit:
    """Return the law of the run times of these runs, which have the same workers.

    Args:
        assumed_cv: Relative standard deviation of the machine's speed from run to run, to be used
            as far as these runs do not show it.
    """
    warm_up = max(warm_up_of(each.seconds) for each in recordings)
    recordings = [each.without(warm_up) for each in recordings]
    seconds = np.concatenate([each.seconds for each in recordings])
    best = independent_fits(seconds)[0]
    goodness = compare(best.law, recordings)
    reasons = goodness.complaints()
    speed_cv = speed_of_further_run(recordings, assumed_cv)
    return RunTimeFit(
        None if reasons else best.law,
        best.law,
        goodness,
        reasons,
        warm_up,
        len(seconds),
        seconds[~np.isnan(seconds).any(axis=1)],
        None if reasons else replace(best.errors, speed=speed_cv),
        speed_cv,
    )


def speed_of_further_run(recordings: list[Recording], assumed_cv: float) -> float:
    """Return by how much the speed of a further run differs from the mean of these runs.

    The result is the relative standard deviation σ √(1 + 1/R) for R runs, since the mean of the
    runs has an error as well. σ² is the variance of a machine's speed from run to run: the variance
    between the runs that chance does not explain. It is at least `assumed_cv`², since a few runs do
    not show that a machine is steadier. It is also at least the variance between the tenths of a
    run if these clearly differ, since a machine that is unsteady within a run is not steadier from
    run to run.
    """
    worker_means = np.nanmean(np.concatenate([each.seconds for each in recordings]), axis=0)
    runs = [each.seconds / worker_means for each in recordings]
    variance = assumed_cv**2
    if len(runs) > 1:
        variance = max(variance, between(*_levels(runs)))
    for run in runs:
        levels, weight = _levels(np.array_split(run, _TENTHS))
        middle = float((weight * levels).sum() / weight.sum())
        excess = float((weight * (levels - middle) ** 2).sum())
        if excess > scipy.stats.chi2.ppf(_CERTAIN, len(levels) - 1):
            variance = max(variance, between(levels, weight))
    return float(np.sqrt(variance * (1 + 1 / len(runs))))


def _levels(parts: list[Floats]) -> tuple[Floats, Floats]:
    """Return the logarithm of the mean of each part, and the inverse of its variance."""
    known = [part[~np.isnan(part)] for part in parts]
    known = [part for part in known if len(part) > 1]
    means = np.array([part.mean() for part in known])
    errors = np.array([part.std() / np.sqrt(len(part)) for part in known]) / means
    return np.log(means), np.maximum(errors, _EQUAL) ** -2


def warm_up_of(seconds: Floats) -> int:
    """Return how many iterations at the beginning differ from the others.

    The result is at most 10, and at most a tenth of all iterations. An iteration's level is the
    median over the workers of the ratio of the worker's time to the worker's median time. An
    iteration differs if its level is more than 5 % outside the range of the levels in the second
    half of the run.
    """
    level = np.nanmedian(seconds / np.nanmedian(seconds, axis=0), axis=1)
    later = level[len(level) // 2 :]
    low, high = later.min() * 0.95, later.max() * 1.05
    most = min(_MOST_WARM_UP, int(len(level) * _WARM_UP))
    first = 0
    while first < most and not low <= level[first] <= high:
        first += 1
    return first


def compare(law: ServiceLaw, recordings: list[Recording]) -> Goodness:
    """Compare the run times of a law with recorded run times."""
    seconds = np.concatenate([each.seconds for each in recordings])
    workers = seconds.shape[1]
    drawn = _draw(law, workers)
    whole = seconds[~np.isnan(seconds).any(axis=1)]
    recorded_order, error = _order_statistics(whole)
    return Goodness(
        distance_of(seconds, drawn),
        np.array([distance_of(seconds[:, n], drawn[:, n]) for n in range(workers)]),
        recorded_order,
        np.sort(drawn, axis=1).mean(axis=0),
        error,
        _correlation([each.seconds for each in recordings]),
        int((~np.isnan(seconds)).sum()),
        drawn,
    )


def _draw(law: ServiceLaw, workers: int) -> Floats:
    """Return run times of the law, shape (T', N)."""
    count = max(200, _DRAWN // workers)
    factors = np.array(law.factors or [1.0] * workers)
    multiples = law.shape()(generator(0, "goodness of fit"), count * workers)
    return law.mean_s * factors * multiples.reshape(count, workers)


def distance_of(recorded: Floats, drawn: Floats) -> float:
    """Return the Kolmogorov distance of two samples.

    Times that differ by at most 0.1 % count as equal: otherwise the distance of two constants would
    be 1, even for nearly equal constants.
    """
    one, other = (part[~np.isnan(part)].ravel() for part in (recorded, drawn))
    above = [
        scipy.stats.ks_2samp(first, second / (1 + _EQUAL), alternative="greater", method="asymp")
        for first, second in ((one, other), (other, one))
    ]
    return max(0.0, *(float(each.statistic) for each in above))


def _order_statistics(whole: Floats) -> tuple[Floats, Floats]:
    """Return the means of the order statistics of complete iterations, and their standard errors.

    The errors come from the means of batches of consecutive iterations, because iterations may be
    correlated.
    """
    ordered = np.sort(whole, axis=1)
    batches = np.array_split(ordered, min(_BATCHES, len(ordered)))
    means = np.array([batch.mean(axis=0) for batch in batches])
    error = scipy.stats.sem(means) if len(means) > 1 else 0 * means[0]
    return ordered.mean(axis=0), error


def _correlation(sequences: list[Floats]) -> float:
    """Return the correlation of the logarithms of a worker's consecutive run times."""
    products, squares = [], []
    for seconds in sequences:
        logs = np.log(np.maximum(seconds, 1e-12))
        rest = logs - np.nanmean(logs, axis=0)
        products.append((rest[1:] * rest[:-1])[~np.isnan(rest[1:] * rest[:-1])])
        squares.append(rest[~np.isnan(rest)] ** 2)
    variance = float(np.concatenate(squares).mean())
    if variance < 1e-6:  # a standard deviation of 0.1 % of the mean
        return 0.0
    return float(np.concatenate(products).mean()) / variance
