"""When the parts of a gradient are complete: in a backward pass, and by estimate."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outpace.blocks.gathering import Gathering


class Readiness:
    """Tells which parts of a flat vector are complete, while its tensors are made one by one.

    Args:
        layers: number of elements of each tensor, in order.
        slices: the parts, in order and without gaps.

    Attributes:
        part: returns a copy of a part: see `Gathering.block`.
    """

    def __init__(self, layers: Sequence[int], slices: Sequence[slice]) -> None:
        gathering = Gathering(layers, slices)
        self.part = gathering.block
        self._pieces = gathering.pieces
        self._parts: list[list[int]] = [[] for _ in layers]  # for each tensor
        for place, pieces in enumerate(self._pieces):
            for piece in pieces:
                self._parts[piece.tensor].append(place)
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
        return [piece.tensor for piece in self._pieces[place]]


def shares_until_ready(slices: Sequence[slice], forward_share: float) -> list[float]:
    """Return, for each part, the share of a computation after which its gradient is complete.

    An estimate: forward takes `forward_share` of the time. Backward makes the gradient from the
    last element to the first, each in the same time. So a part is complete when its first element
    is; the first part after 1, the whole computation.
    """
    elements = slices[-1].stop
    return [1 - (1 - forward_share) * part.start / elements for part in slices]
