"""Tensors as bytes, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import torch

# The dtypes of tensors that processes exchange, by name.
DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
    )
}


def packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the bytes of tensors, one after another; shape (bytes,), uint8."""
    parts = [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def unpacked(layout: Sequence[tuple[str, list[int], str]], data: torch.Tensor) -> dict[str, Any]:
    """Return the tensors by name.

    Args:
        layout: names, shapes and dtypes.

    Raises:
        ValueError: if the size of the data does not match the layout.
    """
    found, place = {}, 0
    for name, shape, dtype in layout:
        kind = getattr(torch, dtype)
        size = math.prod(shape) * kind.itemsize
        piece = data[place : place + size].clone()
        found[name] = piece.view(kind).reshape(shape)
        place += size
    if place != len(data):
        raise ValueError(f"{len(data)} bytes are not the {place} that the layout has")
    return found


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in wire messages."""
    return str(dtype).removeprefix("torch.")
