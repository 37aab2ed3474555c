"""Workers laid out by node: a rectangle, nodes by places on a node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outpace.predict.recorded.table import Nodes


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Which place each worker has in a rectangle of J nodes with W places each.

    place: shape (N,), numbers of places, row by row. There are more places than workers where
    nodes differ in size.
    """

    nodes: int
    width: int
    place: Tensor

    @classmethod
    def of(cls, node: Nodes) -> NodeLayout:
        """Of the workers on these nodes.

        One number for all of several workers says nothing about where they are. Then each is
        taken to be a node of its own: slow or not regardless of the others.
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

    def spread(self, values: Tensor) -> Tensor:
        """From shape (..., N) to (..., J, W); NaN, or False, where nobody is."""
        empty = float("nan") if values.is_floating_point() else 0
        flat = values.new_full((*values.shape[:-1], self.nodes * self.width), empty)
        flat[..., self.place] = values
        return flat.view(*values.shape[:-1], self.nodes, self.width)
