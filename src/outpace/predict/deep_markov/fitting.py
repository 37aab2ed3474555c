"""Fitting by Adam, on the lower bound of the likelihood of windows of recorded runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.mixture import log_times
from outpace.predict.deep_markov.model import DeepMarkov, DeepMarkovFilter, RunTimeScale, Shape
from outpace.predict.fitting import Adam, require_learnable
from outpace.predict.normal import draw_above
from outpace.predict.recorded.table import RunTimes

_MORE = 4  # iterations that a run must have beyond one window
_NARROWEST = 1e-3  # spread of a worker's log run times where they do not vary
_MAD = 1.4826  # standard deviation of a normal distribution in median absolute deviations
LARGE = 512  # workers; with more, sorted run times are modelled by default
_MOST_STEPS, _LEAST_STEPS = 1500, 200
_WORK = 1_000_000  # steps x workers, within these limits: the cost of a step grows with workers
_WINDOWS = 32  # per step
_RATE = 3e-3  # learning rate at the start; falls to 0 along a cosine
_LONGEST = 10.0  # norm to which gradients are clipped
_ANNEALING = 0.2  # part of the steps in which the weight of the divergence rises to 1
_REFILLING = (0.5, 0.75)  # parts of the steps after which cut-off times are drawn anew


def fit(
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
    lag: int = 16,
    latent: int = 16,
    hidden: int = 64,
    ordered: bool | None = None,
    steps: int | None = None,
) -> DeepMarkov:
    """Return the model fitted to recorded runs of the same workers; see `models.fit`.

    lag, latent, hidden: see `Shape`. ordered: True to model the sorted run times; None: if there
    are more than 512 workers. steps: number of optimizer steps; None: as many as take a minute.
    """
    require_learnable(histories, lag + _MORE, absent=False)
    workers = histories[0].workers
    for number, history in enumerate(histories):
        if history.workers != workers:
            raise ConfigError(
                f"run {number}: it has {history.workers} workers, and run 0 has {workers}; a deep "
                "Markov model is fitted to one number of workers: leave the others out, or use "
                "a model of kind pooled"
            )
    shape = Shape(workers, workers > LARGE if ordered is None else ordered, lag, latent, hidden)
    if steps is None:
        steps = min(_MOST_STEPS, max(_LEAST_STEPS, _WORK // workers))
    training = _Training(histories, shape, seed)
    for step in range(steps):
        if step in {int(part * steps) for part in _REFILLING}:
            training.refill()
        training.step((step + 1) / steps)
        progress((step + 1) / steps)
    return DeepMarkov(shape, training.scale, training.network)


class _Training:
    """The networks in training, on standardised run times (`done`) and a filter's view (`seen`).

    At first both are the same. Once the model predicts tolerably, a filter follows the recorded
    runs with random cut-offs, and the guide also learns to infer the states from what the filter
    completed. A guide trained only on full iterations may trust the completed times and continue
    to cut off workers that have been fast again for long (seen with 158 workers on 4 nodes).
    """

    def __init__(self, histories: Sequence[RunTimes], shape: Shape, seed: int) -> None:
        self._histories, self._shape = histories, shape
        self._generator = torch.Generator().manual_seed(seed & (2**63 - 1))
        logs = [self._arranged(_first_filled(each, self._generator)) for each in histories]
        self.scale = RunTimeScale.of(torch.cat(logs))
        self.network = shape.network(seed)
        self._done = [self.scale.inward(table) for table in logs]
        self._seen = [self._done]
        self._optimizer = Adam(self.network.parameters(), longest=_LONGEST)

    def step(self, part: float) -> None:
        """Make one step of Adam; `part` is the share of the steps done after it."""
        length = self._drawn(self._shape.shortest, self._shape.lag + 1)
        places = [self._place(length) for _ in range(_WINDOWS)]
        done = torch.stack([self._done[run][at : at + length] for run, at in places])
        seen = torch.stack(
            [
                self._seen[self._drawn(0, len(self._seen))][run][at : at + length]
                for run, at in places
            ]
        )
        noise = torch.randn(
            _WINDOWS, length, self._shape.latent, generator=self._generator, dtype=torch.float32
        )
        bound = self.network.bound(done, seen, noise, weight=min(1.0, part / _ANNEALING))
        rate = _RATE * 0.5 * (1 + math.cos(math.pi * part))
        self._optimizer.step(-bound.mean() / done[0].numel(), rate)

    def refill(self) -> None:
        """Draw cut-off times from the model as it is now."""
        self._done = [
            self._followed(each, cut=False) if each.censored.any() else table
            for each, table in zip(self._histories, self._done, strict=True)
        ]
        self._seen = [self._done, [self._followed(each, cut=True) for each in self._histories]]

    def _followed(self, history: RunTimes, *, cut: bool) -> Tensor:
        """Return the run as a filter completes it, with `cut` random cut-offs after a window."""
        shape = self._shape
        follower = DeepMarkovFilter(shape, self.scale, self.network, self._generator)
        rows = []
        for t, (seconds, censored) in enumerate(
            zip(history.seconds, history.censored, strict=True)
        ):
            if cut and t >= shape.lag:
                count = self._drawn(shape.workers // 2, shape.workers)
                end = np.partition(seconds, count)[count]
                seconds, censored = np.minimum(seconds, end), censored | (seconds > end)
            rows.append(follower.complete(seconds, censored))
        return self.scale.inward(self._arranged(torch.stack(rows)))

    def _arranged(self, logs: Tensor) -> Tensor:
        return logs.sort(1).values if self._shape.ordered else logs

    def _place(self, length: int) -> tuple[int, int]:
        """Draw run and first iteration of a window of this length, all equally likely."""
        starts = [len(table) - length + 1 for table in self._done]
        at = self._drawn(0, sum(starts))
        run = 0
        while at >= starts[run]:
            at -= starts[run]
            run += 1
        return run, at

    def _drawn(self, low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=self._generator))


def _first_filled(history: RunTimes, generator: torch.Generator) -> Tensor:
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
