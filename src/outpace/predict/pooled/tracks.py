"""Fixed statistics of workers, nodes and cluster, carried from one iteration to the next.

Running means say where a worker and its node have been; the network learns what that is worth.
All times are logarithms of seconds, relative to the iteration's *reference*: the 20 % quantile
of its workers, which a few slow nodes do not change. A worker that was cut off counts with the
time until then, so if less than a fifth finished the reference is the time of the cut-off.
Leading dimensions, "..." below, are independent runs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

# Sums of float32 numbers differ between processors by 1e-7, and a fit makes other decisions of it.
REAL: Final = torch.float64
_QUANTILE: Final = 0.2
_LONG_AGO: Final = 50.0  # age of workers that have never been seen
_SLOWEST: Final = 0.05  # smallest rate of a running mean
_JUMP: Final = 4.0  # change, in units of the noise, beyond which a node's mean starts anew
_FALL: Final = 0.3  # rate at which `low` follows a node's level down
_RISE: Final = 0.02  # rate at which `low` follows it up

WORKER_FEATURES: Final = 7
NODE_FEATURES: Final = 7
CLUSTER_FEATURES: Final = 3


def reference(times: Tensor) -> Tensor:
    """Return the 20 % quantile of log times, shape (..., N) to (...); NaN if all are unknown."""
    known = ~times.isnan()
    ordered = torch.where(known, times, torch.inf).sort(dim=-1).values
    rank = (known.sum(-1) * _QUANTILE).ceil().long().sub_(1).clamp_(min=0)
    found = ordered.gather(-1, rank[..., None])[..., 0]
    return torch.where(found.isinf(), torch.nan, found)


class Tracks(NamedTuple):
    """Shapes (...) for the cluster, (..., J) for nodes and (..., J, W) for their workers."""

    reference: Tensor  # cluster: of the last iteration
    usual: Tensor  # cluster: running mean of the reference
    iterations: Tensor  # cluster: number of references
    last: Tensor  # workers: the last time that was not cut off
    age: Tensor  # workers: iterations since then
    offset: Tensor  # workers: running mean of the distance to the node's level
    offsets: Tensor  # workers: number of values in it
    level: Tensor  # nodes: median of the workers, or a lower bound of it
    smooth: Tensor  # nodes: running mean of the level since its last jump
    smooths: Tensor  # nodes: number of values in it
    low: Tensor  # nodes: the level when the node is fast
    node_age: Tensor  # nodes: iterations since the median was not cut off


class Levels(NamedTuple):
    """Tensors about workers, nodes and the cluster, shapes (..., J, W, n), (..., J, n), (..., n).

    The features of an iteration, with n = 7, 7 and 3, or hidden states of the network.
    """

    worker: Tensor
    node: Tensor
    cluster: Tensor


def begin(runs: tuple[int, ...], nodes: int, width: int) -> Tracks:
    """Return the tracks before the first iteration: all workers at the reference."""
    run, node, worker = (
        torch.zeros((*runs, *rest), dtype=REAL) for rest in ((), (nodes,), (nodes, width))
    )
    return Tracks(
        *(run, run, run, worker, worker + _LONG_AGO, worker, worker),
        *(node, node, node, node, node + _LONG_AGO),
    )


def advance(
    before: Tracks, times: Tensor, censored: Tensor, reference: Tensor, noise: float
) -> tuple[Tracks, Levels]:
    """Add an iteration; return the new tracks and the features of the iteration.

    times: log seconds, shape (..., J, W), NaN where unknown. reference: shape (...), NaN where no
    time is known. noise: usual change of log times, the unit of the features.
    """
    known = ~times.isnan()
    told = ~reference.isnan()
    reference = torch.where(told, reference, before.reference)
    away = torch.where(known, times - reference[..., None, None], 0.0)
    came = known & ~censored

    iterations = before.iterations + told
    usual = _running_mean(before.usual, reference, iterations, told)

    median, node_known, node_came = _medians(away, known, censored)
    seen = before.node_age < _LONG_AGO
    above = torch.maximum(before.level, median)
    level = torch.where(node_came, median, torch.where(node_known, above, before.level))
    jumped = (level - before.smooth).abs() > _JUMP * noise
    smooths = torch.where(jumped, 0.0, before.smooths) + node_came
    smooth = _running_mean(before.smooth, level, smooths, node_came | jumped)
    step = level - before.low
    follow = torch.where(seen, torch.where(step < 0, _FALL, _RISE), 1.0) * node_came
    low = before.low + step * follow

    apart = away - level[..., None]
    counted = came & node_came[..., None]
    offsets = before.offsets + counted
    # A straggler is not where its worker usually is.
    apart = apart.clamp(-_JUMP * noise, _JUMP * noise)
    offset = _running_mean(before.offset, apart, offsets, counted)

    after = Tracks(
        reference,
        usual,
        iterations,
        torch.where(came, away, before.last),
        torch.where(came, 0.0, (before.age + 1.0).clamp(max=_LONG_AGO)),
        offset,
        offsets,
        level,
        smooth,
        smooths,
        low,
        torch.where(node_came, 0.0, (before.node_age + 1.0).clamp(max=_LONG_AGO - 1.0 * seen)),
    )
    surprise = away - torch.where(known, before.smooth[..., None] + before.offset, 0.0)
    worker = torch.stack(
        (
            torch.asinh(away / noise),
            torch.asinh(surprise / noise),
            came.to(REAL),
            known.to(REAL),
            torch.asinh(after.last / noise),
            torch.log1p(after.age),
            torch.asinh(offset / noise),
        ),
        dim=-1,
    )
    share = came.to(REAL).mean(-1)
    node = torch.stack(
        (
            torch.asinh(level / noise),
            torch.asinh((level - before.smooth) / noise),
            torch.asinh(smooth / noise),
            torch.asinh(low / noise),
            node_came.to(REAL),
            torch.log1p(after.node_age),
            torch.log1p(smooths),
        ),
        dim=-1,
    )
    moved = torch.where(before.iterations > 0, reference - before.reference, 0.0)
    cluster = torch.stack(
        (
            torch.asinh(moved / noise),
            torch.asinh((reference - usual) / noise),
            share.mean(-1),
        ),
        dim=-1,
    )
    return after, Levels(worker, node, cluster)


def _running_mean(before: Tensor, value: Tensor, count: Tensor, counted: Tensor) -> Tensor:
    """Return the mean of the last `count` values, at most about 20, with `value` where counted."""
    rate = (1.0 / count.clamp(min=1.0)).clamp(min=_SLOWEST) * counted
    return before + (value - before) * rate


def _medians(away: Tensor, known: Tensor, censored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each node's lower median, whether it has one, and whether that was not cut off."""
    if away.shape[-1] == 1:
        node_known = known[..., 0]
        return away[..., 0], node_known, node_known & ~censored[..., 0]
    ordered, order = torch.where(known, away, torch.inf).sort(dim=-1)
    count = known.sum(-1, keepdim=True)
    middle = (count - 1).clamp(min=0) // 2
    node_known = count[..., 0] > 0
    median = torch.where(node_known, ordered.gather(-1, middle)[..., 0], 0.0)
    cut = censored.gather(-1, order.gather(-1, middle))[..., 0]
    return median, node_known, node_known & ~cut
