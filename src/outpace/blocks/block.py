"""The values that travel and are computed with: blocks of the flat parameter vector.

A *block* is the part of the flat parameter vector that one shard owns (1-D, perhaps in
`Pieces`, perhaps `Deferred` until it is read), or a `Phantom` of its size where only timing
matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import torch

from outpace.blocks.deferred import Deferred
from outpace.blocks.pieces import Pieces


class Phantom(msgspec.Struct, frozen=True, gc=False):
    """Stands for a block of `nbytes` bytes that nobody computes with."""

    nbytes: int


Value: TypeAlias = torch.Tensor | Pieces | Phantom
Block: TypeAlias = Value | Deferred


class StepSettings(msgspec.Struct):
    """What a user's own optimizer says of one step; it travels with the gradient.

    groups: the settings of each parameter group (lr and the like). unused: the numbers of
    the parameters that got no gradient; nothing is done to one that nobody used.
    """

    groups: list[dict[str, Any]]
    unused: list[int] = []


def value_of(block: Block) -> Value:
    """The block itself, computed now if it was deferred."""
    return block.value() if isinstance(block, Deferred) else block


def whole(block: Block) -> torch.Tensor | Phantom:
    """The same block in one piece."""
    value = value_of(block)
    return value.whole() if isinstance(value, Pieces) else value


def parts(block: Block) -> Sequence[torch.Tensor]:
    """The consecutive tensors that it consists of."""
    value = value_of(block)
    if isinstance(value, Pieces):
        return value.parts
    return () if isinstance(value, Phantom) else (value,)
