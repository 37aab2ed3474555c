"""Training runs: parts of recordings, with iterations cut off at random and workers that join late.

A model fitted only to complete iterations would take a cut-off for a slow worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from outpace.predict.pooled.layout import NodeLayout
from outpace.predict.pooled.tracks import REAL, reference
from outpace.predict.recorded.table import Mask, RunTimes, Seconds

_LENGTH: Final = 97  # iterations of a run
_CELLS: Final = 160  # workers of a run
_WIDTH: Final = 16  # workers of a node
_JOINING: Final = 1 / 3  # share of the runs that some workers join late
_LEFT_WHOLE: Final = 0.25  # share of the runs; a tenth of it: share of iterations in the others


class TrainingRun(NamedTuple):
    """Log run times, shapes (T, J, W), and their reference, shape (T,)."""

    times: Tensor
    seen: Tensor  # by the filter: NaN for workers that have yet to join
    censored: Tensor
    reference: Tensor


def drawn(histories: Sequence[RunTimes], generator: np.random.Generator) -> TrainingRun:
    """Draw some workers of a recording, from some iteration on, with random cut-offs."""
    history = histories[int(generator.integers(len(histories)))]
    length = min(_LENGTH, history.iterations)
    first = generator.integers(history.iterations - length + 1)
    rows = slice(first, first + length)
    seconds, censored = _cut(history.seconds[rows], history.censored[rows], generator)
    times = torch.from_numpy(np.log(seconds))
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
    return TrainingRun(places[0], places[1], masks, reference(seen))


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


def together(runs: Sequence[TrainingRun]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stack runs: shapes (T, runs, J, W) and (T, runs), NaN after the end of a shorter run."""
    length = max(len(run.times) for run in runs)
    nodes = max(run.times.shape[1] for run in runs)
    width = max(run.times.shape[2] for run in runs)
    times = torch.full((length, len(runs), nodes, width), torch.nan, dtype=REAL)
    seen, censored = times.clone(), torch.zeros(times.shape, dtype=torch.bool)
    references = times.new_full((length, len(runs)), torch.nan)
    for number, run in enumerate(runs):
        long, high, wide = run.times.shape
        times[:long, number, :high, :wide] = run.times
        seen[:long, number, :high, :wide] = run.seen
        censored[:long, number, :high, :wide] = run.censored
        references[:long, number] = run.reference
    return times, seen, censored, references


def _cut(seconds: Seconds, censored: Mask, generator: np.random.Generator) -> tuple[Seconds, Mask]:
    """Return a run, shape (T, N), with its iterations cut off at random.

    In some runs no worker is cut off; in others all but a share of the workers, or all that are
    later than a multiple of the iteration's median, or those for which waiting does not pay.
    Share and multiple are constant within a run up to a little noise, as they are in use.
    """
    iterations, workers = seconds.shape
    if generator.random() < _LEFT_WHOLE:
        return seconds, censored
    ordered = np.sort(seconds, axis=1)  # NaN last
    there = np.maximum((~np.isnan(seconds)).sum(axis=1), 1)
    kind = generator.integers(3)
    if kind == 0:
        share = generator.uniform(0.3, 1.0) + generator.normal(0.0, 0.1, iterations)
        rank = np.clip(np.ceil(share * there).astype(int), 1, there) - 1
    elif kind == 1:
        late = np.exp(generator.uniform(-0.1, 0.8) + generator.normal(0.0, 0.1, iterations))
        middle = ordered[np.arange(iterations), (there - 1) // 2]
        rank = np.maximum((ordered <= (late * middle)[:, None]).sum(axis=1), 1) - 1
    else:
        with np.errstate(invalid="ignore"):
            gain = np.arange(1, workers + 1) / ordered
        best = np.where(np.isnan(gain), -np.inf, gain).argmax(axis=1)
        rank = np.clip(best + generator.integers(-2, 3, iterations), 0, there - 1)
    rank[generator.random(iterations) < 0.1 * _LEFT_WHOLE] = workers - 1
    bound = ordered[np.arange(iterations), rank][:, None]
    with np.errstate(invalid="ignore"):
        over = seconds > bound
    return np.where(over, bound, seconds), censored | over
