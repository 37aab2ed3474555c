"""When the parts of a gradient are complete: in a backward pass, and by estimate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

import torch

from outpace.blocks.gathering import BlockMemory, no_block_memory


class Readiness:
    """Tells which parts of a flat vector are complete, while its tensors are made one by one.

    Args:
        layers: number of elements of each tensor, in order.
        slices: the parts, in order and without gaps.
    """

    def __init__(self, layers: Sequence[int], slices: Sequence[slice]) -> None:
        starts = list(accumulate(layers, initial=0))
        # For each part, its pieces of tensors: (tensor, low, high) within the tensor.
        self._pieces: list[list[tuple[int, int, int]]] = [[] for _ in slices]
        self._parts: list[list[int]] = [[] for _ in layers]  # for each tensor
        for number, size in enumerate(layers):
            for place, part in enumerate(slices):
                low = max(0, part.start - starts[number])
                high = min(size, part.stop - starts[number])
                if low < high:
                    self._pieces[place].append((number, low, high))
                    self._parts[number].append(place)
        self._missing: list[int] = []

    def begin(self, absent: Collection[int] = ()) -> None:
        """Begin anew. absent: numbers of tensors that are not waited for."""
        self._missing = list(map(len, self._pieces))
        for number in absent:
            for place in self._parts[number]:
                self._missing[place] -= 1

    def made(self, number: int) -> list[int]:
        """Return the parts that a tensor completes, which is complete now; the last one first."""
        complete = []
        for place in reversed(self._parts[number]):
            self._missing[place] -= 1
            if not self._missing[place]:
                complete.append(place)
        return complete

    def tensors(self, place: int) -> list[int]:
        """Return the numbers of the tensors that have a piece in a part."""
        return [number for number, _, _ in self._pieces[place]]

    def part(
        self,
        place: int,
        tensor: Callable[[int], torch.Tensor],
        memory: BlockMemory = no_block_memory,
    ) -> torch.Tensor:
        """Return a copy of a part.

        Args:
            tensor: returns the tensor of a number.
            memory: where the copy is made.
        """
        pieces = [tensor(number).reshape(-1)[low:high] for number, low, high in self._pieces[place]]
        return torch.cat(pieces, out=memory(place, sum(map(len, pieces)), pieces[0].dtype))


def shares_until_ready(slices: Sequence[slice], forward_share: float) -> list[float]:
    """Return, for each part, the share of a computation after which its gradient is complete.

    An estimate: forward takes `forward_share` of the time. Backward makes the gradient from the
    last element to the first, each in the same time. So a part is complete when its first element
    is; the first part after 1, the whole computation.
    """
    elements = slices[-1].stop
    return [1 - (1 - forward_share) * part.start / elements for part in slices]
