"""The arrangement of workers as a rectangle: nodes by places on a node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outpace.predict.recorded.table import Nodes


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The place of each worker in a rectangle of J nodes with W places each.

    Where nodes differ in size some places are empty.
    """

    nodes: int
    width: int
    place: Tensor  # shape (N,), numbered row by row

    @classmethod
    def of(cls, node: Nodes) -> NodeLayout:
        """Return the layout of workers on these nodes.

        If all workers have the same node number, their nodes are unknown: each worker then
        counts as a node of its own, slow or not independently of the others.
        """
        count = len(node)
        if count and (node == node[0]).all():
            node = np.arange(count)
        _, row, sizes = np.unique(node, return_inverse=True, return_counts=True)
        order = np.argsort(row, kind="stable")
        column = np.empty(count, np.int64)
        column[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        width = int(sizes.max())
        return cls(len(sizes), width, torch.from_numpy(row.reshape(-1) * width + column))

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
