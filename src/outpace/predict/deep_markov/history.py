"""Recorded runs as a fit needs them: checked, as log run times, without gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.gaussian import draw_above
from outpace.predict.recorded.table import RunTimes, Seconds

_MORE = 4  # iterations that a run must have beyond one window
_NARROWEST = 1e-3  # of a worker's log run times, where they do not vary
_MAD = 1.4826  # a normal distribution's standard deviation, in median absolute deviations


def checked(histories: Sequence[RunTimes], lag: int) -> int:
    """How many workers they have. Raises ConfigError: what is wrong, where, and what to do."""
    if not histories:
        raise ConfigError("there are no run times to fit a model to: record a run first")
    workers = histories[0].workers
    for number, history in enumerate(histories):
        run = f"run {number}: " if len(histories) > 1 else ""
        if history.workers != workers:
            raise ConfigError(
                f"{run}it has {history.workers} workers, and run 0 has {workers}; a deep Markov "
                "model is fitted to one number of workers: leave the others out, or use "
                "a model of kind pooled"
            )
        if history.iterations < lag + _MORE:
            raise ConfigError(
                f"{run}it has {history.iterations} iterations, and a deep Markov model that "
                f"looks back {lag} needs at least {lag + _MORE}: record a longer run"
            )
        wrong = ~(history.seconds > 0) | np.isinf(history.seconds)
        if wrong.any():
            iteration, worker = np.argwhere(wrong)[0]
            raise ConfigError(
                f"{run}worker {worker}, iteration {iteration}: "
                f"{history.seconds[iteration, worker]:g} is no run time; a deep Markov model "
                "needs a positive number of seconds of every worker in every iteration: leave "
                "out those iterations or workers, or use a model of kind pooled"
            )
    return workers


def log_times(seconds: Seconds) -> Tensor:
    """As a tensor of float64, whatever the array's strides, writable or not."""
    return torch.from_numpy(np.array(seconds, dtype=np.float64, order="C")).log()


def first_filled(history: RunTimes, generator: torch.Generator) -> Tensor:
    """Log run times, shape (T, N), float64; what was cut off is drawn from above that.

    From each worker's log-normal by median and median absolute deviation, both of which
    hold as long as less than half was cut off.
    """
    logs = log_times(history.seconds)
    centre = logs.median(0).values
    spread = _MAD * (logs - centre).abs().median(0).values.clamp(min=_NARROWEST)
    drawn = centre + spread * draw_above((logs - centre) / spread, generator)
    return torch.where(torch.from_numpy(history.censored.copy()), drawn, logs)
