"""Blocks: the parts of the flat parameter vector that travel and are computed with.

A *block* is the part of the flat parameter vector that one shard owns: a 1-D tensor, `Pieces`
of one, a `Deferred` one that is computed when it is read, or a `Phantom` of its size where only
timing matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import torch

from outpace.blocks.deferred import Deferred
from outpace.blocks.pieces import Pieces


class Phantom(msgspec.Struct, frozen=True, gc=False):
    """Stands for a block of `nbytes` bytes where only timing matters."""

    nbytes: int


Value: TypeAlias = torch.Tensor | Pieces | Phantom
Block: TypeAlias = Value | Deferred


class StepSettings(msgspec.Struct):
    """Settings of a user's own optimizer for one step; they travel with the gradient."""

    groups: list[dict[str, Any]]  # of each parameter group (lr and the like)
    unused: list[int] = []  # parameters without a gradient, which the step leaves as they are


def value_of(block: Block) -> Value:
    """Return the block, computed now if it is deferred."""
    return block.value() if isinstance(block, Deferred) else block


def whole(block: Block) -> torch.Tensor | Phantom:
    """Return the block in one piece."""
    value = value_of(block)
    return value.whole() if isinstance(value, Pieces) else value


def parts(block: Block) -> Sequence[torch.Tensor]:
    """Return the consecutive tensors of a block."""
    value = value_of(block)
    if isinstance(value, Pieces):
        return value.parts
    return () if isinstance(value, Phantom) else (value,)
