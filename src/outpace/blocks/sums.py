"""Sums of gradients in a fixed binary tree, so that the order of arrival does not matter.

Floating-point addition is not associative: 32 gradients summed as they arrive give a different last
bit each time. Here the leaf of worker n is node `size + n` of a heap-numbered binary tree. Two
children are added as soon as both are known; at the end, a child without a sibling moves up. The
sum depends on which workers contributed, not on the order of arrival.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

import torch

from outpace.blocks.block import Pieces, Value

Gradient: TypeAlias = torch.Tensor | Pieces


def all_finite(tensor: Gradient) -> bool:
    """False if an entry of this 1-D tensor is infinite or NaN.

    A dot product of the tensor with itself costs a twentieth of isfinite().all(). The product also
    overflows if entries exceed 1e19, but then the training has diverged. Half precision overflows
    far earlier, so there the smallest and the largest entry are tested; both are NaN if any entry
    is.
    """
    if isinstance(tensor, Pieces):
        return all(map(all_finite, tensor.parts)) if tensor.finite is None else tensor.finite
    if tensor.element_size() < 4:
        return not len(tensor) or all(map(math.isfinite, map(float, tensor.aminmax())))
    return math.isfinite(torch.dot(tensor, tensor))


def norm_of(block: object) -> float:
    """Return the Euclidean norm of a 1-D block; 0 for a `Phantom`."""
    if isinstance(block, Pieces):
        return math.hypot(*map(norm_of, block.parts))
    if not isinstance(block, torch.Tensor):
        return 0.0
    return float(
        torch.linalg.vector_norm(block, dtype=torch.promote_types(block.dtype, torch.float32))
    )


class BlockSum(ABC):
    """A sum of at most one gradient of each worker. It owns the gradients added to it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    @abstractmethod
    def add(self, worker: int, gradient: Value) -> None:
        """Add a gradient, in place where possible."""

    @abstractmethod
    def total(self) -> Value:
        """Return the sum. Raises ValueError if nothing was added."""

    def mean(self) -> Value:
        """Return the sum divided by the number of gradients; may overwrite the sum."""
        total = self.total()
        return total.div_(self.count) if self.count > 1 else total


class PartialSum(BlockSum):
    """A sum that can be saved before it is complete."""

    __slots__ = ()

    @abstractmethod
    def parts(self) -> list[tuple[int, Value]]:
        """Return copies of the sums that are not added to each other yet, with their places.

        A place is the node of a tree, or 0 if gradients are added as they arrive.
        """

    @abstractmethod
    def restore(self, parts: Iterable[tuple[int, Value]], count: int) -> None:
        """Restore an empty sum from copies of the `parts` of a sum of `count` gradients."""


class TreeSum(PartialSum):
    """The sum in a fixed tree of `workers` leaves."""

    __slots__ = ("_pending", "_size")

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._size = 1 << (workers - 1).bit_length()
        self._pending: dict[int, Any] = {}  # node -> sum of its subtree

    def add(self, worker: int, gradient: Value) -> None:
        self.count += 1
        pending = self._pending
        node = self._size + worker
        while (sibling := pending.pop(node ^ 1, None)) is not None:
            gradient = _added(sibling, gradient)
            node >>= 1
        pending[node] = gradient

    def parts(self) -> list[tuple[int, Value]]:
        return [(node, part.clone()) for node, part in sorted(self._pending.items())]

    def restore(self, parts: Iterable[tuple[int, Value]], count: int) -> None:
        self._pending = {node: part.clone() for node, part in parts}
        self.count = count

    def total(self) -> Any:
        if not self._pending:
            raise ValueError("nothing was added to this sum")
        # The deepest nodes have the highest numbers; two merged nodes give a node with a lower
        # number.
        nodes = [-node for node in self._pending]
        heapq.heapify(nodes)
        while nodes[0] != -1:
            node = -heapq.heappop(nodes)
            gradient = self._pending.pop(node)
            sibling = self._pending.pop(node ^ 1, None)
            if sibling is not None:
                gradient = _added(sibling, gradient)
                heapq.heappop(nodes)  # the sibling, which follows in the sorted list
            self._pending[node >> 1] = gradient
            heapq.heappush(nodes, -(node >> 1))
        return self._pending[1]


class ArrivalSum(PartialSum):
    """The sum in the order of arrival: one buffer, but its last bits vary between runs."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        super().__init__()
        self._sum: Any = None

    def add(self, worker: int, gradient: Value) -> None:
        self.count += 1
        self._sum = gradient if self._sum is None else _added(self._sum, gradient)

    def parts(self) -> list[tuple[int, Value]]:
        return [] if self._sum is None else [(0, self._sum.clone())]

    def restore(self, parts: Iterable[tuple[int, Value]], count: int) -> None:
        for _, part in parts:
            self._sum = part.clone()
        self.count = count

    def total(self) -> Any:
        if self._sum is None:
            raise ValueError("nothing was added to this sum")
        return self._sum


def _added(one: Any, other: Any) -> Any:
    """Add two blocks in place and return the sum: in pieces if one of them is.

    The gradients of a shard are all cut in the same way, or none is cut. A sum from a file is in
    one piece.
    """
    if type(one) is not type(other):
        if isinstance(other, Pieces):
            one, other = other, one
        if isinstance(one, Pieces) and isinstance(other, torch.Tensor):
            other = Pieces(one.split(other))
    return one.add_(other)


def tree_sum(gradients: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the sum of the gradients of workers 0, 1, ..., in the order that a shard uses."""
    copies = [gradient.clone() for gradient in gradients]
    total = TreeSum(len(copies))
    for worker, gradient in enumerate(copies):
        total.add(worker, gradient)
    summed: torch.Tensor = total.total()
    return summed
