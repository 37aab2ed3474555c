"""The precision of the values that workers average: the parameters' own, or bfloat16.

A number in bfloat16 (a float32 without its lower 16 bits) takes two bytes. The value of each worker
is rounded, the sum is computed in the precision of the parameters, and the result is rounded once
more. A real all-reduce adds in bfloat16 and so rounds at every hop: the error computed here is a
lower bound of its error.
"""

from __future__ import annotations

from typing import Final

import torch

from outpace.blocks.block import Block, Phantom, Value, parts
from outpace.blocks.sums import BlockSum
from outpace.sync import Wire

_BYTES: Final = 2  # bytes of a number in bfloat16


def rounded(value: Value, exact: int = 0) -> Value:
    """Round each number in place to the nearest bfloat16, ties to even; return the value.

    The dtype does not change. A float64 is rounded to float32 first.

    Args:
        exact: number of elements at the end that are not rounded.
    """
    pieces = parts(value)
    left = sum(part.numel() for part in pieces) - exact  # round the elements from this part on
    for part in pieces:
        changed = part[: max(0, left)]
        changed.copy_(changed.to(torch.bfloat16))
        left -= part.numel()
    return value


def bytes_on_the_wire(block: Block, wire: Wire) -> int:
    """Return the bytes that a block takes on the wire; a phantom counts as float32."""
    if wire == "full":
        return block.nbytes
    return block.nbytes // 2 if isinstance(block, Phantom) else _BYTES * block.numel()


class RoundedSum(BlockSum):
    """A sum of values that are sent in bfloat16. The mean, a quotient, is not rounded again.

    Args:
        full: the sum that adds the values.
        exact: see `rounded`.
    """

    def __init__(self, full: BlockSum, exact: int = 0) -> None:
        super().__init__()
        self._full, self._exact = full, exact

    def add(self, worker: int, gradient: Value) -> None:
        self.count += 1
        self._full.add(worker, rounded(gradient, self._exact))

    def total(self) -> Value:
        return rounded(self._full.total(), self._exact)
