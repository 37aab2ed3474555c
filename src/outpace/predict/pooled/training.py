"""Fitting the pooled model: maximum likelihood of each next iteration.

Training runs begin anywhere in a recording, with some of its workers, and have their iterations
cut off at random. The network is trained on a few iterations at a time, and the gradient goes no
further back (truncated back-propagation through time), while the states continue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.fitting import Adam, require_learnable
from outpace.predict.pooled.common import near
from outpace.predict.pooled.law import log_likelihood
from outpace.predict.pooled.layout import NodeLayout, ordered
from outpace.predict.pooled.model import Pooled
from outpace.predict.pooled.network import PooledNetwork
from outpace.predict.pooled.runs import drawn, together
from outpace.predict.pooled.tracks import Levels, Tracks, advance, begin, reference
from outpace.predict.recorded.table import RunTimes
from outpace.support.repeatable import left_as_they_were

FEWEST: Final = 20  # iterations of a history
_ROUNDS: Final = 80
_REFIT_ROUNDS: Final = 20  # when beginning with an earlier fit
_TOGETHER: Final = 10  # rounds whose tracks are computed together
_RUNS: Final = 4  # in parallel
_STEPS: Final = 12  # iterations that the gradient goes back
_RATE: Final = 6e-3  # learning rate
_USUAL: Final = 1.4826 / math.sqrt(2.0)  # standard deviation of a normal by the median step
_LONGEST: Final = 1.0  # norm to which gradients are clipped
_SLOWEST_RATE: Final = 0.03  # share of it at the end


def fit(
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
    earlier: Pooled | None = None,
) -> Pooled:
    """Return the pooled model fitted to recorded runs; see `models.fit`."""
    require_learnable(histories, FEWEST, absent=True)
    histories = [ordered(history) for history in histories]
    with left_as_they_were():
        torch.manual_seed(seed)
        network = PooledNetwork(*_scales(histories))
        if earlier is None:
            network.begin_within(_largest_change(histories))
        else:
            network.load_state_dict(dict(earlier.tensors()))
        optimizer = Adam(network.parameters(), longest=_LONGEST, betas=(0.9, 0.98))
        rounds = _ROUNDS if earlier is None else _REFIT_ROUNDS
        for number, round_ in enumerate(_rounds(histories, seed, rounds, network.noise)):
            _train(network, optimizer, _rate(number / rounds), round_)
            progress((number + 1) / rounds)
        fitted = Pooled(network)
        return Pooled.from_parts(fitted.tensors(), fitted.settings())


def _rate(done: float) -> float:
    """Return the learning rate when this share of the rounds is done."""
    falling = 0.5 * (1.0 + math.cos(math.pi * done))
    rising = min(1.0, 10.0 * done + 0.2)
    return _RATE * rising * (_SLOWEST_RATE + (1.0 - _SLOWEST_RATE) * falling)


class _Round(NamedTuple):
    """Some runs side by side, shapes (T, runs, J, W), and what is known after each iteration."""

    times: Tensor
    censored: Tensor
    tracks: Tracks
    features: Levels


def _rounds(
    histories: Sequence[RunTimes], seed: int, rounds: int, noise: float
) -> Iterator[_Round]:
    """Draw training runs. The tracks of many are computed in as many calls as those of one."""
    generator = np.random.default_rng([seed, 1])
    for first in range(0, rounds, _TOGETHER):
        count = min(_TOGETHER, rounds - first)
        runs = [drawn(histories, generator) for _ in range(count * _RUNS)]
        times, seen, censored, references = together(runs)
        tracks, features = _tracked(seen, censored, references, noise)
        for at in range(0, len(runs), _RUNS):
            shortest = min(len(run.times) for run in runs[at : at + _RUNS])
            part = slice(shortest), slice(at, at + _RUNS)
            yield _Round(
                times[part],
                censored[part],
                Tracks(*(values[part] for values in tracks)),
                Levels(*(values[part] for values in features)),
            )


def _train(network: PooledNetwork, optimizer: Adam, rate: float, round_: _Round) -> None:
    """Go once through all of the runs, with a step of the optimizer every few iterations."""
    times, censored, tracks, features = round_
    length, many, nodes, width = times.shape
    present = (~times.isnan()).any(0)
    state = network.begin(many, nodes, width)
    for first in range(0, length - 1, _STEPS):
        part = slice(first, min(first + _STEPS, length - 1))
        target = slice(part.start + 1, part.stop + 1)
        states = network(Levels(*(values[part] for values in features)), present, state)
        now = Tracks(*(values[part] for values in tracks))
        away = times[target] - now.reference[..., None, None]
        known = ~away.isnan()
        law = near(*network.law(states, now), away, censored[target], known)
        likely = log_likelihood(law, away, censored[target], known)
        loss = -(likely / known.sum((-1, -2)).clamp(min=1)).mean()
        optimizer.step(loss, rate)
        state = Levels(*(values[-1].detach() for values in states))


@torch.no_grad()
def _tracked(
    seen: Tensor, censored: Tensor, references: Tensor, noise: float
) -> tuple[Tracks, Levels]:
    """Return tracks and features after each iteration."""
    tracks = begin(tuple(seen.shape[1:2]), *seen.shape[2:])
    after, told = [], []
    for row in range(len(seen)):
        tracks, features = advance(tracks, seen[row], censored[row], references[row], noise)
        after.append(tracks)
        told.append(features)
    return (
        Tracks(*map(torch.stack, zip(*after, strict=True))),
        Levels(*map(torch.stack, zip(*told, strict=True))),
    )


def _scales(histories: Sequence[RunTimes]) -> tuple[float, float, float]:
    """Return noise, delay and common (see `PooledNetwork`)."""
    moves, apart, shared = [], [], []
    for history in histories:
        times = torch.from_numpy(np.log(np.where(history.censored, np.nan, history.seconds)))
        fast = reference(times)
        shared.append(fast.diff())
        away = NodeLayout.of(history.node).spread(times - fast[:, None])
        moves.append(away.diff(dim=0).flatten())
        if away.shape[-1] > 1:  # a common slow-down of a node is not a delay of one worker
            away = away - away.nanmedian(dim=-1, keepdim=True).values
        apart.append(away.flatten())
    steps, together = (_known(each).abs() for each in (moves, shared))
    if not len(steps):
        raise ConfigError(
            "no worker has two consecutive run times that are known and were not cut off; "
            "record a run that waits for all workers"
        )
    noise = max(_USUAL * float(steps.median()), 2e-3)
    late = _known(apart)
    late = late[late > 3.0 * noise]
    return (
        noise,
        max(float(late.median()) if len(late) else 0.0, 3.0 * noise),
        max(_USUAL * float(together.median()), noise),
    )


def _largest_change(histories: Sequence[RunTimes]) -> float:
    """Return the largest change of a node's median log time from one iteration to the next.

    The times are relative to the reference, so a change of the common factor does not count.
    Infinite if no node has arrived in two iterations, one after the other.
    """
    changes = []
    for history in histories:
        times = torch.from_numpy(np.log(np.where(history.censored, np.nan, history.seconds)))
        away = NodeLayout.of(history.node).spread(times - reference(times)[:, None])
        changes.append(away.nanmedian(dim=-1).values.diff(dim=0).flatten())
    known = _known(changes).abs()
    return float(known.max()) if len(known) else math.inf


def _known(parts: Sequence[Tensor]) -> Tensor:
    values = torch.cat(list(parts))
    return values[~values.isnan()]
