"""The value that a worker gives to an all-reduce, of which any part can be written anywhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

import torch

from outpace.blocks.block import Block, parts
from outpace.blocks.sums import all_finite


class GivenValues:
    """Consecutive tensors of a block, times `share`; zeros if it has no values.

    Args:
        value: None: the worker gives nothing.
        unchecked: number of elements at the end that need not be finite.
    """

    def __init__(self, value: Block | None, share: float, unchecked: int = 0) -> None:
        self._tensors = [] if value is None else [part.reshape(-1) for part in parts(value)]
        self._starts = [0, *accumulate(map(len, self._tensors))]
        self._share, self._checked = share, self._starts[-1] - unchecked

    def write(self, start: int, place: torch.Tensor) -> list[torch.Tensor]:
        """Fill a tensor with the elements from number `start` on.

        Returns:
            Those of them that are to be finite, as they were.
        """
        if not self._tensors:
            place.zero_()
            return []
        found = []
        for part in self._parts(start, start + len(place)):
            here, place = place[: len(part)], place[len(part) :]
            if self._share != 1 and part.device == here.device:
                torch.mul(part, self._share, out=here)
            else:
                here.copy_(part)
                if self._share != 1:
                    here.mul_(self._share)
            if start < self._checked:
                found.append(part[: self._checked - start])
            start += len(part)
        return found

    def _parts(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            first, last = self._starts[number], min(stop, self._starts[number + 1])
            if start < last:
                yield self._tensors[number][start - first : last - first]
            start, number = last, number + 1

    @property
    def are_finite(self) -> bool:
        """False if an element that is to be finite is infinite or NaN."""
        return all(map(all_finite, self._parts(0, self._checked)))
