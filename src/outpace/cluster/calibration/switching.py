"""The fit of run times that switch between a fast and a slow regime.

The law is `regimes` with two regimes. The regime at the start of an iteration is hidden; it changes
between two starts, Δ apart, as a Markov chain in continuous time with rates a = 1/dwell of the fast
regime and b = 1/dwell of the slow one does: P(fast to slow) = a/(a + b) · (1 - exp(-(a + b) Δ)).
The likelihood of the times is that of a hidden Markov model (Baum et al., A maximization technique
occurring in the statistical analysis of probabilistic functions of Markov chains, Annals of
Mathematical Statistics 41, 1970): a product of one 2 x 2 matrix per iteration, here multiplied in
pairs, so that numpy needs log2(T) products. L-BFGS-B maximises it from the most likely of several
starts. Bursts are the same with a short slow regime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import scipy.optimize

from outpace.cluster.calibration import Floats, Ints
from outpace.cluster.calibration.factors import shrunk_factors
from outpace.cluster.regimes import Regime, Regimes

_MOST: Final = 30_000  # run times that are used
_LEAST_FACTOR: Final = 1.1  # between the regimes; less is not worth a regime
_LEAST_SHARE: Final = 0.002  # of the iterations, in each regime
_STARTS: Final = (0.5, 0.85, 0.97)  # quantiles that may divide fast from slow
_STEPS: Final = 80  # of the optimizer
_SHARED: Final = 4  # parameters that all workers have in common
_DIFFERENCE: Final = 1e-6  # for numerical derivatives


@dataclass(frozen=True, slots=True)
class SwitchingFit:
    """A law with two regimes; `bic` as for independent times."""

    law: Regimes
    bic: float


class _Sequences(NamedTuple):
    """Run times, a row for each worker of each run.

    Args:
        logs: Logarithms, shape (S, T); NaN where there is none.
        gaps: Seconds since the start of the iteration before, shape (S, T).
        worker: Shape (S,).
    """

    logs: Floats
    gaps: Floats
    worker: Ints


def switching_fit(runs: Sequence[tuple[Floats, Floats]]) -> SwitchingFit | None:
    """Return the best law with two regimes and a factor for each worker; None if there is none.

    The parameters are each worker's level, the mean logarithm of its fast times; and before them,
    all as logarithms: ln of the slow regime's factor, the standard deviation, both dwells.

    Args:
        runs: For each recorded run: when iterations started, and run times, both of shape (T, N)
            and in s; NaN where a worker was not there.
    """
    data = _sequences(runs)
    known = ~np.isnan(data.logs)
    count = int(known.sum())
    starts = [start for q in _STARTS if (start := _start(data, q)) is not None]
    if not starts:
        return None
    typical = math.log(data.gaps[data.gaps > 0].mean()) if (data.gaps > 0).any() else 0.0
    dwell = typical - math.log(10), typical + math.log(10 * count)
    bounds = [(-3.0, 2.0), (math.log(1e-4), 1.0), dwell, dwell]
    bounds += [(level - 5, level + 5) for level in starts[0][_SHARED:]]
    low, high = np.array(bounds).T
    starts = [np.clip(start, low, high) for start in starts]
    found = scipy.optimize.minimize(
        lambda values: _loss_and_gradient(data, values, count),
        min(starts, key=lambda start: -_log_likelihood(data, start).sum()),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": _STEPS, "ftol": 1e-8},
    )
    law, parameters = _law(data, found.x)
    fast, slow = law.regimes
    share = slow.dwell_s / (slow.dwell_s + slow.factor * fast.dwell_s)  # of the iterations
    if slow.factor < _LEAST_FACTOR or not _LEAST_SHARE < share < 1 - _LEAST_SHARE:
        return None
    return SwitchingFit(law, parameters * math.log(count) + 2 * float(found.fun) * count)


def _sequences(runs: Sequence[tuple[Floats, Floats]]) -> _Sequences:
    """Return the run times of all runs; shorter rows end with NaN, so that T is a power of 2."""
    most = max(20, _MOST // sum(times.shape[1] for _, times in runs))
    length = 1 << (min(most, max(len(times) for _, times in runs)) - 1).bit_length()
    logs, gaps, worker = [], [], []
    for starts, times in runs:
        starts, times = starts[:most].T, times[:most].T
        more = [(0, 0), (0, length - times.shape[1])]
        logs.append(np.pad(np.log(times), more, constant_values=np.nan))
        gaps.append(np.pad(np.diff(np.fmax.accumulate(starts, axis=1), axis=1, prepend=0.0), more))
        worker.append(np.arange(len(times)))
    each = np.maximum(np.nan_to_num(np.concatenate(gaps)), 0.0)
    return _Sequences(np.concatenate(logs), each, np.concatenate(worker))


def _start(data: _Sequences, quantile: float) -> Floats | None:
    """Return parameters to start from, if times above the quantile are slow; None: too few are."""
    medians = np.array([np.nanmedian(data.logs[data.worker == n]) for n in np.unique(data.worker)])
    rest = data.logs - medians[data.worker][:, None]
    # Two means: the border moves to the middle between them.
    border = float(np.nanquantile(rest, quantile))
    for _ in range(10):
        slow, fast = rest > border, rest <= border
        if slow.sum() < 3 or fast.sum() < 3:
            return None
        border = (float(rest[slow].mean()) + float(rest[fast].mean())) / 2
    factor = max(float(rest[slow].mean() - rest[fast].mean()), 0.15)
    variance = (rest[slow].var() * slow.sum() + rest[fast].var() * fast.sum()) / np.sum(fast | slow)
    switches = max(1, int((slow[:, 1:] & fast[:, :-1]).sum()))
    typical = max(float(data.gaps.mean()), 1e-9)
    dwell = [math.log(max(each.sum() / switches, 1) * typical) for each in (fast, slow)]
    shared = [math.log(factor), 0.5 * math.log(max(variance, 1e-6)), *dwell]
    return np.concatenate([shared, medians])


def _loss_and_gradient(data: _Sequences, values: Floats, count: int) -> tuple[float, Floats]:
    """Return -ln L per run time, and its gradient by differences.

    A worker's level changes only the likelihood of its own times, so that one evaluation gives the
    derivatives of all levels.
    """
    here = _log_likelihood(data, values)
    gradient = np.empty(len(values))
    for place in range(_SHARED):
        step = _DIFFERENCE * (np.arange(len(values)) == place)
        gradient[place] = (_log_likelihood(data, values + step) - here).sum()
    levels = _DIFFERENCE * (np.arange(len(values)) >= _SHARED)
    gradient[_SHARED:] = np.bincount(data.worker, _log_likelihood(data, values + levels) - here)
    return -float(here.sum()) / count, -gradient / (_DIFFERENCE * count)


def _log_likelihood(data: _Sequences, values: Floats) -> Floats:
    """Return ln L of each row with these parameters, shape (S,)."""
    factor, deviation, fast_s, slow_s = np.exp(values[:_SHARED])
    rest = data.logs - values[_SHARED:][data.worker][:, None]
    scaled = (rest[..., None] - [0.0, factor]) / deviation
    constant = math.log(deviation) + 0.5 * math.log(2 * math.pi)
    emitted = np.nan_to_num(-0.5 * scaled**2 - constant - data.logs[..., None])  # 0: no time
    most = emitted.max(axis=-1)
    fast, slow = np.moveaxis(np.exp(emitted - most[..., None]), -1, 0)
    rates = np.array([1 / fast_s, 1 / slow_s])
    remains = np.exp(-rates.sum() * data.gaps)
    remains[:, 0] = 0.0  # the regime is drawn from the stationary law: a matrix of equal rows
    to_slow, to_fast = (share * (1 - remains) for share in rates / rates.sum())
    a, b, c, d = (1 - to_slow) * fast, to_slow * slow, to_fast * fast, (1 - to_fast) * slow
    logs = most.sum(axis=1)
    while a.shape[1] > 1:
        (a, e), (b, f), (c, g), (d, h) = ((m[:, 0::2], m[:, 1::2]) for m in (a, b, c, d))
        a, b, c, d = a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h
        size = a + b + c + d
        a, b, c, d = a / size, b / size, c / size, d / size
        logs = logs + np.log(size).sum(axis=1)
    return np.asarray(logs + np.log((a + b)[:, 0]))  # equal rows: the sum of one is meant


def _law(data: _Sequences, values: Floats) -> tuple[Regimes, float]:
    """Return the law with these parameters, and their effective number."""
    factor, deviation, fast_s, slow_s = np.exp(values[:_SHARED]).tolist()
    levels = values[_SHARED:]
    counts = np.bincount(data.worker, (~np.isnan(data.logs)).sum(axis=1))
    factors = shrunk_factors(levels, deviation / np.sqrt(counts))
    law = Regimes(
        mean_s=float(np.exp(levels).mean()) * math.exp(deviation**2 / 2),
        cv=math.sqrt(math.expm1(deviation**2)),
        factors=factors.rounded,
        regimes=(Regime(1.0, fast_s), Regime(math.exp(factor), slow_s)),
    )
    return law, _SHARED + 1 + factors.parameters
