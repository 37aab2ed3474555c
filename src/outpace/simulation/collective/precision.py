"""How exactly values travel where workers average: as they are, or in bfloat16.

In bfloat16 (a float32 without its lower 16 bits) they take two bytes. Each worker's value is
rounded, the sum of those is made in the precision of the parameters, and is rounded once
more on its way back. An all-reduce for real adds in bfloat16 and so rounds at every
hop: what is computed here is the best that it can do.
"""

from __future__ import annotations

from typing import Final

import torch

from outpace.blocks.block import Block, Phantom, Value, parts
from outpace.sync import Wire
from outpace.sync.parameter_block import BlockSum

_BYTES: Final = 2  # of a number in bfloat16


def rounded(value: Value) -> Value:
    """The same in place, each number rounded to the nearest in bfloat16, ties to even.

    The dtype stays. A float64 is rounded to float32 first.
    """
    for part in parts(value):
        part.copy_(part.to(torch.bfloat16))
    return value


def bytes_on_the_wire(block: Block, wire: Wire) -> int:
    """How many it takes; one that nobody computes with is taken for float32."""
    if wire == "full":
        return block.nbytes
    return block.nbytes // 2 if isinstance(block, Phantom) else _BYTES * block.numel()


class RoundedSum:
    """Another sum, of what travels in bfloat16. Implements `BlockSum`."""

    def __init__(self, exact: BlockSum) -> None:
        self._exact = exact
        self.count = 0

    def add(self, worker: int, gradient: Value) -> None:
        self.count += 1
        self._exact.add(worker, rounded(gradient))

    def mean(self) -> Value:
        """The rounded sum divided; the quotient is not rounded to bfloat16 again."""
        total = self.total()
        return total if isinstance(total, Phantom) else total.div_(self.count)

    def total(self) -> Value:
        return rounded(self._exact.total())
