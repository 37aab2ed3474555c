"""Copies the state that a script keeps, for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from outpace.real.net.checkpoint_messages import MOST_KEPT
from outpace.record.checkpoints.trees import Unfit, packed_tree


def packed_state(state: Any, worker: str, most: int = MOST_KEPT) -> dict[str, torch.Tensor]:
    """Return a state as tensors, which are copies.

    Args:
        worker: name of the worker whose script keeps it.
        most: bytes that it may have.

    Raises:
        Unfit: if a checkpoint cannot keep a part of it, or if it is too large.
    """
    copy = packed_tree(state, f"what the script of {worker} keeps")
    size = size_of(copy)
    if size > most:
        raise Unfit(
            f"the script of {worker} keeps {size:,} bytes, and {most:,} are possible: give "
            "outpace.attach smaller objects"
        )
    return copy


def size_of(tensors: Mapping[str, torch.Tensor]) -> int:
    """Return the bytes of all these tensors together."""
    return sum(tensor.nbytes for tensor in tensors.values())
