"""Fitting: Adam on the lower bound, over windows of recorded runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.filter import DeepMarkovFilter
from outpace.predict.deep_markov.gaussian import draw_above
from outpace.predict.deep_markov.model import DeepMarkov, Shape
from outpace.predict.deep_markov.network import Network
from outpace.predict.deep_markov.scale import Scale
from outpace.runtimes.table import RunTimes

LARGE = 512  # workers: from here on the sorted run times are emitted, if nobody says otherwise
_MORE = 4  # iterations that a run must have beyond one window
_BATCH = 32  # windows
_RATE = 3e-3  # of Adam, at first; falls to 0 along a cosine
_NORM = 10.0  # gradients are clipped to, per worker... see _train
_ANNEALED = 0.2  # part of the steps in which the divergence comes in


@dataclass(frozen=True, slots=True)
class Effort:
    steps: int = 1500


def fit(
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
    lag: int = 16,
    latent: int = 16,
    hidden: int = 64,
    ordered: bool | None = None,
    steps: int = 1500,
) -> DeepMarkov:
    """The model of these recorded runs, all of the same N workers; equal seeds, equal bits.

    ordered: emit the sorted run times; None: if there are more than 512 workers. progress is
    told the part done, from 0 to 1. Raises ConfigError for run times it cannot learn from.
    """
    workers = _checked(histories, lag)
    if ordered is None:
        ordered = workers > LARGE
    shape = Shape(workers, ordered, lag, latent, hidden)
    generator = torch.Generator().manual_seed(seed & (2**63 - 1))
    with _one_thread():
        logs = [_filled(history, generator) for history in histories]
        if ordered:
            logs = [table.sort(1).values for table in logs]
        scale = Scale.of(torch.cat(logs))
        network = shape.network(seed)

        def refill() -> list[Tensor]:
            return [_refilled(h, network, scale, shape, generator) for h in histories]

        _train(
            network, [scale.inward(table) for table in logs], refill, shape, steps,
            generator, progress,
        )  # fmt: skip
    return DeepMarkov(shape, scale, network)


def _train(
    network: Network, tables: Sequence[Tensor], refill: Callable[[], Sequence[Tensor]],
    shape: Shape, steps: int, generator: torch.Generator, progress: Callable[[float], None],
) -> None:  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    pictures = [tables]
    refills = {int(part * steps) for part in (0.5, 0.75)}
    for step in range(steps):
        if step in refills:
            pictures = [tables, refill()]
        length = _drawn(shape.shortest, shape.lag + 1, generator)
        places = [_place(tables, length, generator) for _ in range(_BATCH)]
        x = torch.stack([tables[run][at : at + length] for run, at in places])
        seen = torch.stack(
            [
                pictures[_drawn(0, len(pictures), generator)][run][at : at + length]
                for run, at in places
            ]
        )
        noise = torch.randn(_BATCH, length, shape.latent, generator=generator)
        weight = min(1.0, (step + 1) / (steps * _ANNEALED))
        loss = -network.bound(x, seen, noise, weight).mean() / (length * shape.workers)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), _NORM)
        optimizer.step()
        schedule.step()
        progress((step + 1) / steps)


def _place(tables: Sequence[Tensor], length: int, generator: torch.Generator) -> tuple[int, int]:
    """Run and first iteration of any window of this length."""
    places = [len(table) - length + 1 for table in tables]
    at = _drawn(0, sum(places), generator)
    for run, count in enumerate(places):
        if at < count:
            return run, at
        at -= count
    raise AssertionError


def _refilled(
    history: RunTimes, network: Network, scale: Scale, shape: Shape, generator: torch.Generator
) -> Tensor:
    """What a filter would see of this run if each iteration were cut off at some point."""
    follower = DeepMarkovFilter(network, scale, shape.lag, shape.ordered, generator)
    rows = []
    for t, (seconds, censored) in enumerate(zip(history.seconds, history.censored, strict=True)):
        if t >= shape.lag:
            count = _drawn(shape.workers // 2, shape.workers, generator)
            end = np.partition(seconds, count)[count]
            seconds, censored = np.minimum(seconds, end), censored | (seconds > end)
        logs = follower.complete(seconds, censored)
        rows.append(scale.inward(logs.sort().values if shape.ordered else logs))
    return torch.stack(rows)


def _drawn(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high, (1,), generator=generator))


def _filled(history: RunTimes, generator: torch.Generator) -> Tensor:
    """Log run times; those that were cut off drawn from the worker's log-normal above that."""
    logs = torch.from_numpy(np.log(history.seconds))
    cut = torch.from_numpy(history.censored)
    if not cut.any():
        return logs
    centre = logs.median(0).values
    spread = 1.4826 * (logs - centre).abs().median(0).values.clamp(min=1e-3)
    low = (logs - centre) / spread
    return torch.where(cut, centre + spread * draw_above(low, generator), logs)


def _checked(histories: Sequence[RunTimes], lag: int) -> int:
    """The number of workers. Raises ConfigError, saying what is wrong where, and what to do."""
    if not histories:
        raise ConfigError("there are no run times to fit a model to: record a run")
    workers = histories[0].workers
    for number, history in enumerate(histories):
        run = f"run {number}: " if len(histories) > 1 else ""
        if history.workers != workers:
            raise ConfigError(
                f"{run}has {history.workers} workers, and run 0 has {workers}: the deep Markov "
                "model is one for a fixed number; fit it to runs of the same workers, or use "
                "a model of kind pooled"
            )
        if history.iterations < lag + _MORE:
            raise ConfigError(
                f"{run}has {history.iterations} iterations, and the deep Markov model needs at "
                f"least {lag + _MORE}, its lag of {lag} and {_MORE}: record a longer run"
            )
        wrong = ~(history.seconds > 0) | np.isinf(history.seconds)
        if wrong.any():
            iteration, worker = np.argwhere(wrong)[0]
            raise ConfigError(
                f"{run}worker {worker}, iteration {iteration}: "
                f"{history.seconds[iteration, worker]:g} is no run time; the deep Markov model "
                "needs a positive number of seconds from every worker in every iteration; "
                "leave out what lacks them, or use a model of kind pooled"
            )
    return workers


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums come out the same on every machine only if they are not cut up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
