"""Fixed statistics of workers, nodes and cluster, updated from one iteration to the next.

Running means describe the past of a worker and its node; the network learns how much they predict.
All times are logarithms of seconds, relative to the iteration's *reference*: the 20 % quantile of
its workers, which a few slow nodes do not change. A worker that was cut off counts with the time
until the cut-off, so if less than a fifth of the workers finished, the reference is the time of the
cut-off.

Workers are arranged in a rectangle: J nodes by W places on a node (`NodeLayout`). Leading
dimensions, "..." below, are independent runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from outpace.predict.recorded import Nodes, Seconds

# Sums of float32 numbers differ between processors by 1e-7, and this could change decisions of a
# fit.
REAL: Final = torch.float64
_QUANTILE: Final = 0.2
_LONG_AGO: Final = 50.0  # age of workers that have never been seen
_SLOWEST: Final = 0.05  # smallest rate of a running mean
_JUMP: Final = 4.0  # change, in units of the noise, above which a node's mean starts again
_FALL: Final = 0.3  # rate at which `low` follows a node's level down
_RISE: Final = 0.02  # rate at which `low` follows it up

WORKER_FEATURES: Final = 7
NODE_FEATURES: Final = 7
CLUSTER_FEATURES: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class NodeLayout:
    """The place of each worker in a rectangle of J nodes with W places each.

    Large nodes come first; nodes of equal size, and the workers of a node, are ordered by their
    fastest time in the first iteration. So the numbers of workers and nodes have no effect, unless
    two first times are equal. If nodes differ in size, the last places of some nodes are empty.

    Args:
        nodes: number of nodes, J.
        width: number of places of a node, W.
        place: place of each worker, shape (N,), numbered row by row.
    """

    nodes: int
    width: int
    place: Tensor

    @classmethod
    def of(cls, node: Nodes, first: Seconds | None = None) -> NodeLayout:
        """Return the layout of workers on these nodes.

        If all workers have the same node number, their nodes are unknown: then each worker counts
        as a separate node, which is slow independently of the others.

        Args:
            node: the number of each worker's node, shape (N,).
            first: the times of the first iteration, NaN for an absent worker; None: nodes and
                workers are ordered by their numbers.
        """
        count = len(node)
        if count and (node == node[0]).all():
            node = np.arange(count)
        times = np.zeros(count) if first is None else np.where(np.isnan(first), np.inf, first)
        _, row, sizes = np.unique(node, return_inverse=True, return_counts=True)
        fastest = np.full(len(sizes), np.inf)
        np.minimum.at(fastest, row, times)
        by_size = np.lexsort((fastest, -sizes))
        row, sizes = np.argsort(by_size)[row], sizes[by_size]
        order = np.lexsort((times, row))
        column = np.empty(count, np.int64)
        column[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        width = int(sizes[0])
        return cls(len(sizes), width, torch.from_numpy(row * width + column))

    @property
    def workers(self) -> Tensor:
        """The workers in the order of their places, shape (N,)."""
        return self.place.argsort()

    @property
    def present(self) -> Tensor:
        """True in the places with a worker, shape (J, W)."""
        return self.spread(torch.ones(len(self.place), dtype=torch.bool))

    def spread(self, values: Tensor) -> Tensor:
        """Reshape (..., N) to (..., J, W), with NaN or False in empty places."""
        empty = float("nan") if values.is_floating_point() else 0
        flat = values.new_full((*values.shape[:-1], self.nodes * self.width), empty)
        flat[..., self.place] = values
        return flat.view(*values.shape[:-1], self.nodes, self.width)


def reference(times: Tensor) -> Tensor:
    """Return the 20 % quantile of log times, shape (..., N) to (...); NaN if all are unknown."""
    known = ~times.isnan()
    ordered = torch.where(known, times, torch.inf).sort(dim=-1).values
    rank = (known.sum(-1) * _QUANTILE).ceil().long().sub_(1).clamp_(min=0)
    found = ordered.gather(-1, rank[..., None])[..., 0]
    return torch.where(found.isinf(), torch.nan, found)


class Tracks(NamedTuple):
    """Statistics of shapes (...) for the cluster, (..., J) for nodes, (..., J, W) for workers."""

    reference: Tensor  # cluster: reference of the last iteration
    usual: Tensor  # cluster: running mean of the reference
    iterations: Tensor  # cluster: number of references
    last: Tensor  # workers: the last time that was not cut off
    age: Tensor  # workers: iterations since then
    offset: Tensor  # workers: running mean of the distance to the node's level
    offsets: Tensor  # workers: number of values in it
    level: Tensor  # nodes: median of the workers, or its lower bound
    smooth: Tensor  # nodes: running mean of the level since its last jump
    smooths: Tensor  # nodes: number of values in it
    low: Tensor  # nodes: the level when the node is fast
    node_age: Tensor  # nodes: iterations since the median was not cut off


class Levels(NamedTuple):
    """Tensors about workers, nodes and the cluster, shapes (..., J, W, n), (..., J, n), (..., n).

    They are the features of an iteration, with n = 7, 7 and 3, or hidden states of the network.
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


def advance(before: Tracks, times: Tensor, censored: Tensor, noise: float) -> tuple[Tracks, Levels]:
    """Add an iteration; return the new tracks and the features of the iteration.

    times: log seconds, shape (..., J, W), NaN where unknown. noise: usual change of log times, the
    unit of the features.
    """
    known = ~times.isnan()
    came = known & ~censored
    now = reference(times.flatten(-2))
    told = ~now.isnan()
    now = torch.where(told, now, before.reference)
    away = torch.where(known, times - now[..., None, None], 0.0)
    iterations = before.iterations + told
    usual = _running_mean(before.usual, now, iterations, told)

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
    older = (before.node_age + 1.0).clamp(max=_LONG_AGO - 1.0 * seen)
    node_age = torch.where(node_came, 0.0, older)

    # The time of a straggler is not its worker's usual time.
    apart = (away - level[..., None]).clamp(-_JUMP * noise, _JUMP * noise)
    counted = came & node_came[..., None]
    offsets = before.offsets + counted
    offset = _running_mean(before.offset, apart, offsets, counted)
    last = torch.where(came, away, before.last)
    age = torch.where(came, 0.0, (before.age + 1.0).clamp(max=_LONG_AGO))

    def scaled(distance: Tensor) -> Tensor:
        return torch.asinh(distance / noise)

    surprise = away - torch.where(known, before.smooth[..., None] + before.offset, 0.0)
    here = came.to(REAL)
    worker = [scaled(away), scaled(surprise), here, known.to(REAL)]
    worker += [scaled(last), torch.log1p(age), scaled(offset)]
    node = [scaled(level), scaled(level - before.smooth), scaled(smooth), scaled(low)]
    node += [node_came.to(REAL), torch.log1p(node_age), torch.log1p(smooths)]
    moved = torch.where(before.iterations > 0, now - before.reference, 0.0)
    cluster = [scaled(moved), scaled(now - usual), here.mean((-1, -2))]
    features = Levels(*(torch.stack(each, dim=-1) for each in (worker, node, cluster)))
    after = Tracks(
        *(now, usual, iterations, last, age, offset, offsets),
        *(level, smooth, smooths, low, node_age),
    )
    return after, features


def _running_mean(before: Tensor, value: Tensor, count: Tensor, counted: Tensor) -> Tensor:
    """Return a running mean over at most about 20 values; it includes `value` if `counted`."""
    rate = (1.0 / count.clamp(min=1.0)).clamp(min=_SLOWEST) * counted
    return before + (value - before) * rate


def _medians(away: Tensor, known: Tensor, censored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each node's lower median, whether it exists, and whether it was not cut off."""
    ordered, order = torch.where(known, away, torch.inf).sort(dim=-1)
    count = known.sum(-1, keepdim=True)
    middle = (count - 1).clamp(min=0) // 2
    node_known = count[..., 0] > 0
    median = torch.where(node_known, ordered.gather(-1, middle)[..., 0], 0.0)
    cut = censored.gather(-1, order.gather(-1, middle))[..., 0]
    return median, node_known, node_known & ~cut
