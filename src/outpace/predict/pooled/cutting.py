"""Recorded iterations, cut off at random: what a model will see when it is in use.

A model fitted to complete iterations alone would take a cut-off for a slow worker.
"""

from __future__ import annotations

import numpy as np

from outpace.predict.recorded.table import Mask, Seconds

_LEFT_WHOLE = 0.25  # share of the runs, and of the iterations of the others a tenth of that


def cut(seconds: Seconds, censored: Mask, generator: np.random.Generator) -> tuple[Seconds, Mask]:
    """One run of shape (T, N), as it might have been had its iterations not been waited out.

    In some runs nobody is cut off, in others all but a share of the workers, or all later than
    a multiple of the iteration's median, or those for whom waiting does not pay. Share and
    multiple belong to the run and vary a little, so that cut-offs go on as they go on in use.
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
