"""Recorded runs as fitting needs them: checked, as log run times, without gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.gaussian import draw_above
from outpace.predict.recorded.table import RunTimes, Seconds

_MORE = 4  # iterations that a run must have beyond one window
_NARROWEST = 1e-3  # spread of a worker's log run times where they do not vary
_MAD = 1.4826  # standard deviation of a normal distribution in median absolute deviations


def checked(histories: Sequence[RunTimes], lag: int) -> int:
    """Return the number of workers. Raises ConfigError for runs that cannot be learned from."""
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
        if problem := history.describe_invalid(absent=False):
            raise ConfigError(
                f"{run}{problem}; a deep Markov model needs a positive number of seconds of every "
                "worker in every iteration: leave out those iterations or workers, or use a model "
                "of kind pooled"
            )
    return workers


def log_times(seconds: Seconds) -> Tensor:
    """Return the logarithms as a float64 tensor, for an array of any strides, writable or not."""
    return torch.from_numpy(np.array(seconds, dtype=np.float64, order="C")).log()


def first_filled(history: RunTimes, generator: torch.Generator) -> Tensor:
    """Return log run times, shape (T, N), float64, with draws in place of those cut off.

    The draws are greater than the time of the cut-off and come from a log-normal law of each
    worker, with its median and median absolute deviation. Both are right as long as less than
    half of its iterations were cut off.
    """
    logs = log_times(history.seconds)
    centre = logs.median(0).values
    spread = _MAD * (logs - centre).abs().median(0).values.clamp(min=_NARROWEST)
    drawn = centre + spread * draw_above((logs - centre) / spread, generator)
    return torch.where(torch.from_numpy(history.censored.copy()), drawn, logs)
