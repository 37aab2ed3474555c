"""The arrangement of workers as a rectangle: nodes by places on a node.

Places follow from what the workers have done, not from their numbers: nodes are ordered by size
and then by the times of their workers, from the first iteration on, and so are the workers of a
node. So the same cluster has the same rectangle however its workers and nodes are numbered, and
whatever is computed from it is the same bit for bit. Workers, or nodes, that have done exactly the
same may be in any order: exchanging them changes nothing in the rectangle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.predict.recorded.table import Mask, Nodes, RunTimes, Seconds

_Classes: TypeAlias = NDArray[np.int64]
_EMPTY: Final = -1.0  # in place of a time, where there is no worker


@dataclass(frozen=True, slots=True, eq=False)
class NodeLayout:
    """The place of each worker in a rectangle of J nodes with W places each.

    Where nodes differ in size the last places of some are empty.

    Args:
        place: Shape (N,), numbered row by row.
        node_class, worker_class: Shapes (J,) and (J, W), ascending; equal for nodes, or for workers
            of a node, that have done the same until now.
    """

    nodes: int
    width: int
    place: Tensor
    node_class: _Classes
    worker_class: _Classes

    @classmethod
    def of(cls, node: Nodes) -> NodeLayout:
        """Return the layout of workers on these nodes, of which nothing is known.

        If all workers have the same node number, their nodes are unknown: each worker then
        counts as a node of its own, slow or not independently of the others.
        """
        count = len(node)
        if count and (node == node[0]).all():
            node = np.arange(count)
        _, row, sizes = np.unique(node, return_inverse=True, return_counts=True)
        by_size = np.argsort(-sizes, kind="stable")
        row = np.argsort(by_size)[row.reshape(-1)]
        sizes = sizes[by_size]
        order = np.argsort(row, kind="stable")
        column = np.empty(count, np.int64)
        column[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        width = int(sizes[0])
        places = np.arange(width)
        alike = np.where(places < sizes[:, None], 0, places)  # each empty place is a class
        return cls(len(sizes), width, torch.from_numpy(row * width + column), -sizes, alike)

    def refined(self, seconds: Seconds, censored: Mask) -> NodeLayout:
        """Return the layout after an iteration: those that did the same are ordered by it.

        Shapes (N,), NaN for a worker that was not there.
        """
        if self._all_differ:
            return self
        shape = self.nodes, self.width
        time, cut = (np.full(self.nodes * self.width, _EMPTY) for _ in range(2))
        place = self.place.numpy()
        time[place] = np.where(np.isnan(seconds), np.inf, seconds)
        cut[place] = censored
        time, cut = time.reshape(shape), cut.reshape(shape)

        # Within the nodes, then the nodes.
        column = np.lexsort((cut, time, self.worker_class), axis=-1)
        time, cut = (np.take_along_axis(each, column, -1) for each in (time, cut))
        row = np.lexsort((*cut.T[::-1], *time.T[::-1], self.node_class))
        time, cut = time[row], cut[row]

        both = np.stack((time, cut))
        other = (both[..., 1:] != both[..., :-1]).any(0)
        worker_class = _split(self.worker_class[row].T, other.T).T
        other = (both[:, 1:] != both[:, :-1]).any((0, 2))
        node_class = _split(self.node_class[row], other)
        # The worker that was in the place (row, column) of this layout is in that place now.
        now = np.empty(self.nodes * self.width, np.int64)
        now[(row[:, None] * self.width + column[row]).reshape(-1)] = np.arange(now.size)
        return NodeLayout(
            self.nodes, self.width, torch.from_numpy(now[place]), node_class, worker_class
        )

    @property
    def _all_differ(self) -> bool:
        return bool(
            (np.diff(self.node_class) != 0).all() and (np.diff(self.worker_class) != 0).all()
        )

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


def _split(classes: _Classes, other: Mask) -> _Classes:
    """Return new numbers of classes along the first axis, split where the next is another."""
    new = (np.diff(classes, axis=0) != 0) | other
    return np.concatenate((np.zeros_like(classes[:1]), new.cumsum(axis=0)))


def ordered(history: RunTimes) -> RunTimes:
    """Return a recording with its workers and nodes in the order of their times."""
    layout = NodeLayout.of(history.node)
    for seconds, censored in zip(history.seconds, history.censored, strict=True):
        layout = layout.refined(seconds, censored)
    workers = layout.workers.numpy()
    known = (history.node != history.node[0]).any()
    node = layout.place.numpy()[workers] // layout.width if known else history.node
    return RunTimes(history.seconds[:, workers], history.censored[:, workers], node)
