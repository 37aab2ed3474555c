"""Run times of eight workers; two workers are slow in bursts."""

from __future__ import annotations

from typing import Final

import numpy as np

from outpace.predict.recorded import RunTimes

WORKERS: Final = 8
IN_BURSTS: Final = (2, 5)
USUAL_S: Final = 0.4
SLOWER: Final = 3.0
NORMAL, SLOW = 12, 8  # mean number of iterations in a row
NOISE: Final = 0.05


def drawn(iterations: int, seed: int) -> RunTimes:
    """Return run times of workers on a machine each; those IN_BURSTS alternate in speed."""
    random = np.random.default_rng(seed)
    factor = np.ones((iterations, WORKERS))
    for worker in IN_BURSTS:
        slow = random.random() < SLOW / (NORMAL + SLOW)
        for t in range(iterations):
            factor[t, worker] = SLOWER if slow else 1.0
            slow ^= bool(random.random() < 1 / (SLOW if slow else NORMAL))
    noise = np.exp(random.normal(0, NOISE, factor.shape))
    seconds = USUAL_S * factor * noise
    return RunTimes(seconds, np.zeros(seconds.shape, dtype=bool), np.arange(WORKERS))
