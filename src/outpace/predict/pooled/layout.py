"""The arrangement of workers as a rectangle: nodes by places on a node.

Large nodes come first, then those with the fastest worker in the first iteration; so do the workers
of a node. The numbers of workers and nodes then play no role, unless two first times are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outpace.predict.recorded.table import Nodes, RunTimes, Seconds


@dataclass(frozen=True, slots=True, eq=False)
class NodeLayout:
    """The place of each worker in a rectangle of J nodes with W places each.

    Where nodes differ in size the last places of some are empty.

    Args:
        place: Shape (N,), numbered row by row.
    """

    nodes: int
    width: int
    place: Tensor

    @classmethod
    def of(cls, node: Nodes, first: Seconds | None = None) -> NodeLayout:
        """Return the layout of workers on these nodes.

        If all workers have the same node number, their nodes are unknown: each worker then
        counts as a node of its own, slow or not independently of the others.

        Args:
            first: The times of the first iteration, NaN for a worker that was not there; None:
                nodes and workers are in the order of their numbers.
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


def ordered(history: RunTimes) -> RunTimes:
    """Return a recording with its workers and nodes in the order of their first times."""
    layout = NodeLayout.of(history.node, history.seconds[0])
    workers = layout.workers.numpy()
    known = (history.node != history.node[0]).any()
    node = layout.place.numpy()[workers] // layout.width if known else history.node
    return RunTimes(history.seconds[:, workers], history.censored[:, workers], node)
