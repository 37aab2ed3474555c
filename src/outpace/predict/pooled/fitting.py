"""Fits the pooled model by the likelihood of each next iteration.

Training runs begin anywhere in a recording, with some of its workers, and their iterations are cut
off at random. The network is trained on a few iterations at a time: gradients are propagated only
within these (truncated back-propagation through time), while the states are passed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.pooled.law import log_likelihood, near
from outpace.predict.pooled.model import Pooled
from outpace.predict.pooled.network import PooledNetwork
from outpace.predict.pooled.tracks import Levels, NodeLayout, Tracks, advance, begin, reference
from outpace.predict.recorded import RunTimes
from outpace.predict.training import cut_off, minimise, require_learnable, window_rows
from outpace.support.repeatable import left_as_they_were

FEWEST: Final = 20  # most iterations of a history
_ROUNDS: Final = 80
_REFIT_ROUNDS: Final = 20  # rounds if the fit starts from an earlier one
_RUNS: Final = 4  # runs in parallel, from one recording
_LENGTH: Final = 97  # most iterations of a run
_CELLS: Final = 160  # most workers of a run
_WIDTH: Final = 16  # most workers of a node
_JOINING: Final = 1 / 3  # share of the runs in which workers join late
_STEPS: Final = 12  # number of iterations through which a gradient is propagated
_RATE: Final = 6e-3  # learning rate
# standard deviation of a normal law relative to its median step
_USUAL: Final = 1.4826 / math.sqrt(2.0)


def fit(
    histories: Sequence[RunTimes],
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
    earlier: Pooled | None = None,
    ordered: bool | None = None,
) -> Pooled:
    """Return the pooled model fitted to recorded runs; see `models.fit`."""
    if ordered is not None:
        raise ConfigError("ordered: leave it out: pooled has no choice; deep-markov has")
    require_learnable(histories, FEWEST, absent=True)
    recordings = [_Recording.of(history) for history in histories]
    noise, delay, common, largest = _scales(recordings)
    with left_as_they_were():
        torch.manual_seed(seed)
        network = PooledNetwork(noise, delay, common)
        if earlier is None:
            network.begin_within(largest)
        else:
            network.load_state_dict(dict(earlier.tensors()))
        rounds = _ROUNDS if earlier is None else _REFIT_ROUNDS
        generator = torch.Generator().manual_seed(seed)
        losses = _losses(network, recordings, rounds, generator)
        minimise(network.parameters(), losses, _RATE, progress)
        fitted = Pooled(network)
        return Pooled.from_parts(fitted.tensors(), fitted.settings())


class _Recording(NamedTuple):
    """Log run times by iteration and place, shape (T, J, W), NaN where unknown."""

    times: Tensor
    censored: Tensor

    @classmethod
    def of(cls, history: RunTimes) -> _Recording:
        layout = NodeLayout.of(history.node, history.seconds[0])
        times, censored = np.log(history.seconds), np.array(history.censored)
        return cls(*(layout.spread(torch.from_numpy(each)) for each in (times, censored)))

    def windows(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw runs of some of the workers, with random cut-offs.

        Returns:
            Times, the times as a filter sees them, and which of these are censored, shapes (T,
            runs, J, W). A filter does not see workers that have yet to join, but their times are
            targets as well, so that the model learns to predict workers that it has never seen.
        """
        length = min(_LENGTH, len(self.times))
        rows = window_rows([len(self.times)], length, _RUNS, generator)
        times, censored = self.times[rows], self.censored[rows]
        for axis, most in ((3, _WIDTH), (2, max(1, _CELLS // min(times.shape[3], _WIDTH)))):
            if times.shape[axis] > most:
                some = torch.randperm(times.shape[axis], generator=generator)[:most]
                times, censored = (each.index_select(axis, some) for each in (times, censored))
        shape = times.shape[2:]
        times, censored = cut_off(times.flatten(2), censored.flatten(2), generator)
        node = torch.arange(shape[0]).repeat_interleave(shape[1])
        unseen = _joining(node, length, _RUNS, generator)
        seen = times.masked_fill(unseen, torch.nan)
        shape = times.shape[:2] + shape
        return times.view(shape), seen.view(shape), censored.view(shape)


def _joining(node: Tensor, length: int, windows: int, generator: torch.Generator) -> Tensor:
    """Draw which workers have yet to join, shape (L, B, N): workers and nodes of every third run.

    node: the number of each worker's node, shape (N,).
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    workers = uniform(windows, len(node)) < 0.4 * uniform(windows, 1)
    nodes = uniform(windows, int(node.max()) + 1) < 0.4 * uniform(windows, 1)
    some = (workers | nodes[:, node]) & (uniform(windows, 1) < _JOINING)
    until = 1.3 * length * uniform(windows, 1)
    return some & (torch.arange(length)[:, None, None] < until)


def _losses(
    network: PooledNetwork,
    recordings: Sequence[_Recording],
    rounds: int,
    generator: torch.Generator,
) -> Iterator[tuple[float, Tensor]]:
    """Yield the losses of drawn parts of recordings, for each round; see `training.minimise`."""
    for number in range(rounds):
        windows = recordings[number % len(recordings)].windows(generator)
        times, seen, censored = windows
        tracks, features = _tracked(seen, censored, network.noise)
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
            yield (number + part.stop / (length - 1)) / rounds, loss
            state = Levels(*(values[-1].detach() for values in states))


@torch.no_grad()
def _tracked(seen: Tensor, censored: Tensor, noise: float) -> tuple[Tracks, Levels]:
    """Return tracks and features after each iteration."""
    tracks = begin(tuple(seen.shape[1:2]), *seen.shape[2:])
    after, told = [], []
    for times, cut in zip(seen, censored, strict=True):
        tracks, features = advance(tracks, times, cut, noise)
        after.append(tracks)
        told.append(features)
    return (
        Tracks(*map(torch.stack, zip(*after, strict=True))),
        Levels(*map(torch.stack, zip(*told, strict=True))),
    )


def _scales(recordings: Sequence[_Recording]) -> tuple[float, float, float, float]:
    """Return noise, delay and common (see `PooledNetwork`), and the largest change of a node.

    The change of a node is the change of its median log time from one iteration to the next,
    relative to the reference, so that a change of the common factor does not count. It is infinite
    if no node has finished in two consecutive iterations.
    """
    moves, apart, shared, changes = [], [], [], []
    for times, censored in recordings:
        times = times.masked_fill(censored, torch.nan)
        fast = reference(times.flatten(1))
        shared.append(fast.diff())
        away = times - fast[:, None, None]
        moves.append(away.diff(dim=0).flatten())
        middle = away.nanmedian(dim=-1, keepdim=True).values
        changes.append(middle.diff(dim=0).flatten())
        # A slow-down of a whole node is not a delay of one worker.
        apart.append((away - middle if away.shape[-1] > 1 else away).flatten())
    steps, together, late, largest = (_known(each) for each in (moves, shared, apart, changes))
    if not len(steps):
        raise ConfigError(
            "no worker has two consecutive run times that are known and were not cut off; "
            "record a run that waits for all workers"
        )
    noise = max(_USUAL * float(steps.abs().median()), 2e-3)
    late = late[late > 3.0 * noise]
    return (
        noise,
        max(float(late.median()) if len(late) else 0.0, 3.0 * noise),
        max(_USUAL * float(together.abs().median()), noise),
        float(largest.abs().max()) if len(largest) else math.inf,
    )


def _known(parts: Sequence[Tensor]) -> Tensor:
    values = torch.cat(list(parts))
    return values[~values.isnan()]
