"""Random cut-offs of recorded iterations, as a model will see them in use.

A model fitted only to complete iterations would take a cut-off for a slow worker.
"""

from __future__ import annotations

import numpy as np

from outpace.predict.recorded.table import Mask, Seconds

_LEFT_WHOLE = 0.25  # share of the runs; a tenth of that is the share of iterations in the others


def cut(seconds: Seconds, censored: Mask, generator: np.random.Generator) -> tuple[Seconds, Mask]:
    """Return a run, shape (T, N), with its iterations cut off at random.

    In some runs no worker is cut off; in others all but a share of the workers, or all that are
    later than a multiple of the iteration's median, or those for which waiting does not pay.
    Share and multiple are constant within a run up to a little noise, as they are in use.
    """
    iterations, workers = seconds.shape
    if generator.random() < _LEFT_WHOLE:
        return seconds, censored
    ordered = np.sort(seconds, axis=1)  # NaN last
    there = np.maximum((~np.isnan(seconds)).sum(axis=1), 1)
    kind = generator.integers(3)
    if kind == 0:
        share = generator.uniform(0.3, 1.0) + generator.normal(0.0, 0.1, iterations)
        rank = np.clip(np.ceil(share * there).astype(int), 1, there) - 1
    elif kind == 1:
        late = np.exp(generator.uniform(-0.1, 0.8) + generator.normal(0.0, 0.1, iterations))
        middle = ordered[np.arange(iterations), (there - 1) // 2]
        rank = np.maximum((ordered <= (late * middle)[:, None]).sum(axis=1), 1) - 1
    else:
        with np.errstate(invalid="ignore"):
            gain = np.arange(1, workers + 1) / ordered
        best = np.where(np.isnan(gain), -np.inf, gain).argmax(axis=1)
        rank = np.clip(best + generator.integers(-2, 3, iterations), 0, there - 1)
    rank[generator.random(iterations) < 0.1 * _LEFT_WHOLE] = workers - 1
    bound = ordered[np.arange(iterations), rank][:, None]
    with np.errstate(invalid="ignore"):
        over = seconds > bound
    return np.where(over, bound, seconds), censored | over
