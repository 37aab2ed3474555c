"""Fitting by Adam, on the lower bound of the likelihood of windows of recorded runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.beginning import begin
from outpace.predict.deep_markov.factors import Factors
from outpace.predict.deep_markov.mixture import log_times
from outpace.predict.deep_markov.model import DeepMarkov, RunTimeScale, Shape
from outpace.predict.deep_markov.network import Seen
from outpace.predict.deep_markov.windows import Windows
from outpace.predict.fitting import Adam, require_learnable
from outpace.predict.normal import draw_above
from outpace.predict.recorded.table import RunTimes
from outpace.support.repeatable import left_as_they_were

_MORE = 4  # iterations that a run must have beyond one window
_NARROWEST = 1e-3  # spread of a worker's log run times where they do not vary
_MAD = 1.4826  # standard deviation of a normal distribution in median absolute deviations
LARGE = 512  # workers; with more, sorted run times are modelled by default
_MOST_FACTORS, _MOST_FACTORS_SORTED = 32, 8
_FEWEST_STATES, _MORE_STATES = 16, 8  # in all, and beyond two for each factor
_HIDDEN = 64  # more learned the recorded runs by heart: held-out run times became less likely
_WINDOWS = 32  # per step
_RATE = 5e-3  # learning rate at the start; falls to 0 along a cosine
_WARMING = 50  # steps in which it rises
_LONGEST = 10.0  # norm to which gradients are clipped
_WEIGHT, _ANNEALING = 0.3, 0.2  # of the divergence: at the start, and how fast it rises to 1


def default_steps(workers: int, iterations: int) -> int:
    """Return the number of optimizer steps for so many workers and iterations of all runs.

    More iterations bear more steps. The cost of a step grows with the workers, and the limit
    keeps a fit within a minute of one core.
    """
    return min(300 + 4 * iterations, 1500, 200 + 300_000 // (200 + workers))


def fit(
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
    lag: int = 16,
    latent: int | None = None,
    hidden: int = _HIDDEN,
    ordered: bool | None = None,
    steps: int | None = None,
) -> DeepMarkov:
    """Return the model fitted to recorded runs of the same workers; see `models.fit`.

    lag, latent, hidden: see `Shape`. latent: at least two for each factor are taken; None: as
    the run times have factors. ordered: True to model the sorted run times; None: if there are
    more than 512 workers. steps: number of optimizer steps; None: see `default_steps`.
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
    with left_as_they_were():
        torch.set_default_dtype(torch.float64)
        ordered = workers > LARGE if ordered is None else ordered
        generator = torch.Generator().manual_seed(seed & (2**63 - 1))
        filled = torch.cat([_first_filled(each, ordered, generator) for each in histories])
        scale = RunTimeScale.of(filled)
        most = _MOST_FACTORS_SORTED if ordered else _MOST_FACTORS
        factors = Factors.of(scale.inward(filled), most)
        states = max(_FEWEST_STATES, 2 * factors.count + _MORE_STATES) if latent is None else latent
        shape = Shape(workers, ordered, lag, max(states, 2 * factors.count), hidden, factors.count)
        network = shape.network(seed)
        begin(network, factors)
        windows = Windows(
            _joined(histories, scale, ordered), [each.iterations for each in histories], generator
        )
        optimizer = Adam(network.parameters(), longest=_LONGEST)
        steps = default_steps(workers, len(filled)) if steps is None else steps
        for step in range(steps):
            done = (step + 1) / steps
            length = int(torch.randint(shape.shortest, lag + 1, (1,), generator=generator))
            told, seen = windows.draw(_WINDOWS, length)
            noise = torch.randn(
                length, _WINDOWS, shape.latent, generator=generator, dtype=torch.float64
            )
            bound = network.bound(told, seen, noise, weight=min(1.0, _WEIGHT + done / _ANNEALING))
            optimizer.step(-bound.mean() / (length * workers), _rate(step, done))
            progress(done)
        return DeepMarkov(shape, scale, network)


def _rate(step: int, done: float) -> float:
    return _RATE * 0.5 * (1 + math.cos(math.pi * done)) * min(1.0, (step + 1) / _WARMING)


def _joined(histories: Sequence[RunTimes], scale: RunTimeScale, ordered: bool) -> Seen:
    """Return all runs one after the other, standardised, shapes (T, N)."""
    logs = torch.cat([log_times(each.seconds) for each in histories])
    cut = torch.cat([torch.from_numpy(each.censored.copy()) for each in histories])
    if ordered:
        logs, order = logs.sort(1)
        cut = cut.gather(1, order)
    return Seen(scale.inward(logs), cut.double())


def _first_filled(history: RunTimes, ordered: bool, generator: torch.Generator) -> Tensor:
    """Return log run times, shape (T, N), float64, with draws in place of those cut off.

    The draws are greater than the time of the cut-off and come from a log-normal law of each
    worker, with its median and median absolute deviation. Both are right as long as less than
    half of its iterations were cut off.
    """
    logs = log_times(history.seconds)
    centre = logs.median(0).values
    spread = _MAD * (logs - centre).abs().median(0).values.clamp(min=_NARROWEST)
    drawn = centre + spread * draw_above((logs - centre) / spread, generator)
    filled = torch.where(torch.from_numpy(history.censored.copy()), drawn, logs)
    return filled.sort(1).values if ordered else filled
