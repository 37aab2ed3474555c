"""Fits the model by the lower bound of the likelihood of windows of recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.factors import Factors, begin
from outpace.predict.deep_markov.mixture import log_times
from outpace.predict.deep_markov.model import UNKNOWN, DeepMarkov, RunTimeScale, Shape
from outpace.predict.deep_markov.network import DeepMarkovNetwork, Seen
from outpace.predict.normal import draw_above
from outpace.predict.recorded import RunTimes
from outpace.predict.training import cut_off, minimise, require_learnable, window_rows
from outpace.support.repeatable import left_as_they_were

LARGE: Final = 512  # number of workers above which sorted run times are modelled by default
_MORE: Final = 4  # iterations that a run must have beyond one window
_NARROWEST: Final = 1e-3  # spread of a worker's log run times if they do not vary
_MAD: Final = 1.4826  # deviation of a normal distribution in median absolute deviations
_MOST_FACTORS, _MOST_FACTORS_SORTED = 32, 8
_FEWEST_STATES, _MORE_STATES = 16, 8  # states in all, and in addition to two for each factor
_HIDDEN: Final = 64  # larger networks overfitted: held-out times became less likely
_WINDOWS: Final = 32  # windows per step
_UNSEEN: Final = 0.1  # largest share of workers about which nothing is known
_RATE: Final = 5e-3  # learning rate
_WEIGHT, _ANNEALING = 0.3, 0.2  # weight of the divergence: at the start, and how fast it rises to 1


def default_steps(workers: int, iterations: int) -> int:
    """Return the number of optimizer steps for a number of workers and of all runs' iterations.

    More iterations allow more steps without overfitting. The cost of a step grows with the workers,
    and the limit keeps a fit within a minute of one core.
    """
    return min(300 + 4 * iterations, 1500, 200 + 300_000 // (200 + workers))


def fit(
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
    earlier: DeepMarkov | None = None,
    lag: int = 16,
    latent: int | None = None,
    hidden: int = _HIDDEN,
    ordered: bool | None = None,
    steps: int | None = None,
) -> DeepMarkov:
    """Return the model fitted to recorded runs of the same workers; see `models.fit`.

    earlier: not used, since another history has other factors. lag, latent, hidden: see `Shape`.
    latent: at least two for each factor are used; None: the number follows from the factors.
    ordered: True to model the sorted run times; None: if there are more than 512 workers. steps:
    number of optimizer steps; None: see `default_steps`.
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
        steps = default_steps(workers, len(filled)) if steps is None else steps
        losses = _losses(network, shape, histories, scale, steps, generator)
        minimise(network.parameters(), losses, _RATE, progress)
        return DeepMarkov(shape, scale, network)


def _losses(
    network: DeepMarkovNetwork,
    shape: Shape,
    histories: Sequence[RunTimes],
    scale: RunTimeScale,
    steps: int,
    generator: torch.Generator,
) -> Iterator[tuple[float, Tensor]]:
    """Draw windows of random length in each step; see `training.minimise`."""
    logs, censored = (torch.cat(each) for each in zip(*map(_logs, histories), strict=True))
    if shape.ordered:
        logs, order = logs.sort(1)
        censored = censored.gather(1, order)
    x = scale.inward(logs)
    lengths = [each.iterations for each in histories]
    for step in range(steps):
        done = (step + 1) / steps
        length = int(torch.randint(shape.shortest, shape.lag + 1, (1,), generator=generator))
        rows = window_rows(lengths, length, _WINDOWS, generator)
        times, cut = cut_off(x[rows], censored[rows], generator)
        # Nothing is known about some workers, so that the model learns to predict them from others.
        unseen = torch.rand(1, _WINDOWS, shape.workers, generator=generator)
        unseen = unseen < _UNSEEN * torch.rand(1, _WINDOWS, 1, generator=generator)
        seen = Seen(times.masked_fill(unseen, UNKNOWN), (cut | unseen).double())
        told = Seen(x[rows], censored[rows].double())
        noise = torch.randn(length, _WINDOWS, shape.latent, generator=generator)
        bound = network.bound(told, seen, noise, weight=min(1.0, _WEIGHT + done / _ANNEALING))
        yield done, -bound.mean() / (length * shape.workers)


def _logs(history: RunTimes) -> tuple[Tensor, Tensor]:
    """Return log run times, and which of them are lower bounds; shapes (T, N)."""
    return log_times(history.seconds), torch.from_numpy(history.censored.copy())


def _first_filled(history: RunTimes, ordered: bool, generator: torch.Generator) -> Tensor:
    """Return log run times, shape (T, N), float64, with draws in place of cut-off times.

    The draws are greater than the time of the cut-off and come from a log-normal law of each
    worker, with its median and median absolute deviation. Both are right as long as less than
    half of its iterations were cut off.
    """
    logs, censored = _logs(history)
    centre = logs.median(0).values
    spread = _MAD * (logs - centre).abs().median(0).values.clamp(min=_NARROWEST)
    drawn = centre + spread * draw_above((logs - centre) / spread, generator)
    filled = torch.where(censored, drawn, logs)
    return filled.sort(1).values if ordered else filled
