"""Fitting the pooled model: maximum likelihood of each next iteration.

Training runs begin anywhere in a recording, with some of its workers, and have their iterations
cut off at random. The network is trained on a few iterations at a time, and the gradient goes no
further back (truncated back-propagation through time), while the states continue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.pooled.cutting import cut
from outpace.predict.pooled.law import log_likelihood
from outpace.predict.pooled.layout import NodeLayout
from outpace.predict.pooled.model import Pooled
from outpace.predict.pooled.network import HiddenState, PooledNetwork
from outpace.predict.pooled.tracks import Features, Tracks, advance, begin, reference
from outpace.predict.recorded.table import Mask, RunTimes
from outpace.support.repeatable import left_as_they_were, one_thread

FEWEST: Final = 20  # iterations of a history
_ROUNDS: Final = 80
_RUNS: Final = 4  # in parallel
_LENGTH: Final = 97  # iterations of a run
_STEPS: Final = 12  # iterations that the gradient goes back
_CELLS: Final = 160  # workers of a run
_WIDTH: Final = 16  # workers of a node
_JOINING: Final = 1 / 3  # share of the runs that some workers join late
_RATE: Final = 6e-3  # learning rate
_SLOWEST_RATE: Final = 0.03  # share of it at the end


class _RecordedRun(NamedTuple):
    """Log run times, shapes (T, J, W), and their reference, shape (T,)."""

    times: Tensor
    seen: Tensor  # by the filter: NaN for workers that have yet to join
    censored: Tensor
    reference: Tensor


def fit(
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Pooled:
    """Return the pooled model fitted to recorded runs.

    Args:
        progress: Called with the share that is done.

    Raises:
        ConfigError: for run times from which nothing can be learned.
    """
    if not histories:
        raise ConfigError("there are no run times to fit a model to; record a run first")
    for number, history in enumerate(histories):
        _check(history, f"history {number}" if len(histories) > 1 else "the history")
    with left_as_they_were(), one_thread():
        torch.manual_seed(seed)
        noise, delay = _scales(histories)
        network = PooledNetwork(noise, delay)
        generator = np.random.default_rng([seed, 1])
        optimizer = torch.optim.Adam(network.parameters(), lr=_RATE, betas=(0.9, 0.98))
        for number in range(_ROUNDS):
            runs = [_drawn(histories, generator) for _ in range(_RUNS)]
            done = number / _ROUNDS
            falling = 0.5 * (1.0 + np.cos(np.pi * done))
            rate = _RATE * min(1.0, 10.0 * done + 0.2)
            for group in optimizer.param_groups:
                group["lr"] = rate * (_SLOWEST_RATE + (1.0 - _SLOWEST_RATE) * falling)
            _train(network, optimizer, runs)
            progress((number + 1) / _ROUNDS)
        return Pooled(network.requires_grad_(False))


def _train(
    network: PooledNetwork, optimizer: torch.optim.Optimizer, runs: Sequence[_RecordedRun]
) -> float:
    """Go once through all of the runs, with a step of the optimizer every few iterations."""
    times, seen, censored, references = _together(runs)
    length, many, nodes, width = times.shape
    present = (~times.isnan()).any(0)
    with torch.no_grad():
        tracks, features = _tracked(seen, censored, references, network.noise)
    state = network.begin(many, nodes, width)
    total = 0.0
    for first in range(0, length - 1, _STEPS):
        part = slice(first, min(first + _STEPS, length - 1))
        target = slice(part.start + 1, part.stop + 1)
        states = network(Features(*(values[part] for values in features)), present, state)
        now = Tracks(*(values[part] for values in tracks))
        law = network.law(states, now)
        away = times[target] - now.reference[..., None, None]
        known = ~away.isnan()
        likely = log_likelihood(law, away, censored[target], known)
        loss = -(likely / known.sum((-1, -2)).clamp(min=1)).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        total += float(loss.detach()) * (part.stop - part.start)
        state = HiddenState(*(values[-1].detach() for values in states))
    return total / (length - 1)


def _tracked(
    seen: Tensor, censored: Tensor, references: Tensor, noise: float
) -> tuple[Tracks, Features]:
    """Return tracks and features after each iteration."""
    tracks = begin(tuple(seen.shape[1:2]), *seen.shape[2:])
    after, told = [], []
    for row in range(len(seen)):
        tracks, features = advance(tracks, seen[row], censored[row], references[row], noise)
        after.append(tracks)
        told.append(features)
    return (
        Tracks(*map(torch.stack, zip(*after, strict=True))),
        Features(*map(torch.stack, zip(*told, strict=True))),
    )


def _drawn(histories: Sequence[RunTimes], generator: np.random.Generator) -> _RecordedRun:
    """Draw some workers of a recording, from some iteration on, with random cut-offs."""
    history = histories[int(generator.integers(len(histories)))]
    length = min(_LENGTH, history.iterations)
    first = generator.integers(history.iterations - length + 1)
    rows = slice(first, first + length)
    seconds, censored = cut(history.seconds[rows], history.censored[rows], generator)
    times = torch.from_numpy(np.log(seconds)).float()
    seen = torch.where(torch.from_numpy(_away(history, length, generator)), torch.nan, times)
    layout = NodeLayout.of(history.node)
    places = torch.stack((layout.spread(times), layout.spread(seen)))
    masks = layout.spread(torch.from_numpy(censored))
    if layout.width > _WIDTH:
        some = torch.from_numpy(generator.permutation(layout.width)[:_WIDTH])
        places, masks = places[..., some], masks[..., some]
    most = max(1, _CELLS // min(layout.width, _WIDTH))
    if layout.nodes > most:
        some = torch.from_numpy(generator.permutation(layout.nodes)[:most])
        places, masks = places[:, :, some], masks[:, some]
    return _RecordedRun(places[0], places[1], masks, reference(seen))


def _away(history: RunTimes, length: int, generator: np.random.Generator) -> Mask:
    """Draw which workers have yet to join, shape (T, N): some workers and nodes of every third run.

    Their times are targets all the same, so that the model learns to predict workers that it
    has never seen and is not misled by their absence.
    """
    if generator.random() > _JOINING:
        return np.zeros((length, history.workers), bool)
    _, node = np.unique(history.node, return_inverse=True)
    chosen = generator.random(history.workers) < generator.uniform(0.0, 0.4)
    chosen |= (generator.random(node.max() + 1) < generator.uniform(0.0, 0.4))[node]
    return chosen & (np.arange(length) < generator.uniform(0.0, 1.3) * length)[:, None]


def _together(runs: Sequence[_RecordedRun]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stack runs, cut to the shortest one: shapes (T, runs, J, W) and (T, runs)."""
    length = min(len(run.times) for run in runs)
    nodes = max(run.times.shape[1] for run in runs)
    width = max(run.times.shape[2] for run in runs)
    times = torch.full((length, len(runs), nodes, width), torch.nan)
    seen, censored = times.clone(), torch.zeros(times.shape, dtype=torch.bool)
    for number, run in enumerate(runs):
        _, high, wide = run.times.shape
        times[:, number, :high, :wide] = run.times[:length]
        seen[:, number, :high, :wide] = run.seen[:length]
        censored[:, number, :high, :wide] = run.censored[:length]
    return times, seen, censored, torch.stack([run.reference[:length] for run in runs], dim=1)


def _scales(histories: Sequence[RunTimes]) -> tuple[float, float]:
    """Return the usual change of log times between iterations, and the usual delay."""
    moves, apart = [], []
    for history in histories:
        times = torch.from_numpy(np.log(np.where(history.censored, np.nan, history.seconds)))
        away = NodeLayout.of(history.node).spread(times - reference(times)[:, None])
        step = away.diff(dim=0)
        moves.append(step[~step.isnan()].abs())
        if away.shape[-1] > 1:  # a common slow-down of a node is not a delay of one worker
            away = away - away.nanmedian(dim=-1, keepdim=True).values
        apart.append(away[~away.isnan()])
    steps, rest = torch.cat(moves).numpy(), torch.cat(apart).numpy()
    if not len(steps):
        raise ConfigError(
            "no worker has two consecutive iterations that were not cut off; "
            "record a run that waits for all workers"
        )
    noise = max(1.4826 / math.sqrt(2.0) * float(np.median(steps)), 2e-3)
    late = rest[rest > 3.0 * noise]
    return noise, max(float(np.median(late)) if len(late) else 0.0, 3.0 * noise)


def _check(history: RunTimes, name: str) -> None:
    if history.iterations < FEWEST:
        raise ConfigError(
            f"{name} has {history.iterations} iterations, too few to fit a model to; "
            f"record at least {FEWEST}"
        )
    if np.isnan(history.seconds).all():
        raise ConfigError(f"{name} has no run time that is known; record a run first")
    if problem := history.describe_invalid():
        raise ConfigError(
            f"{name}: {problem}; it must be a positive, finite number of seconds, or NaN where it "
            "is unknown"
        )
