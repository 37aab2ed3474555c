"""Converts tensors to bytes and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final

import msgspec
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

PHANTOM: Final = "phantom"  # dtype of a block whose values are never used, only its size


class BlockHead(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Stands for a block in a wire message; the block itself follows the message."""

    dtype: Annotated[str, msgspec.Meta(max_length=64)]
    elements: Annotated[int, msgspec.Meta(ge=0, le=2**62)]

    @property
    def nbytes(self) -> int:
        return self.elements * (1 if self.dtype == PHANTOM else DTYPES[self.dtype].itemsize)


def packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the bytes of tensors, one after another; shape (bytes,), uint8."""
    parts = [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    # A script may have set another default device.
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device="cpu")


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


class _Contents(msgspec.Struct):
    """The list at the front of the bytes that `packed_by_name` returns."""

    tensors: list[tuple[str, list[int], str]]  # names, shapes and dtypes
    names: list[str] = []


_HEAD: Final = 8  # size in bytes of the number that gives the length of the JSON text


def packed_by_name(tensors: Mapping[str, torch.Tensor], names: Sequence[str] = ()) -> torch.Tensor:
    """Return tensors and their names as bytes for `unpacked_by_name`; shape (bytes,), uint8.

    Shapes may differ from one call to the next.

    Args:
        names: further names to pack.
    """
    listed = [(name, list(t.shape), dtype_name(t.dtype)) for name, t in tensors.items()]
    contents = msgspec.json.encode(_Contents(listed, list(names)))
    head = bytearray(len(contents).to_bytes(_HEAD, "little") + contents)
    return torch.cat([torch.frombuffer(head, dtype=torch.uint8), packed(list(tensors.values()))])


def unpacked_by_name(data: torch.Tensor) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the tensors by name, and the further names. Raises ValueError for other bytes."""
    start = _HEAD + int.from_bytes(data[:_HEAD].numpy().tobytes(), "little")
    if not _HEAD < start <= len(data):
        raise ValueError("the bytes of named tensors begin with no list of them")
    contents = msgspec.json.decode(data[_HEAD:start].numpy().tobytes(), type=_Contents)
    for name, shape, dtype in contents.tensors:
        if min(shape, default=0) < 0 or not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise ValueError(f"{name} cannot be a tensor of shape {shape} and dtype {dtype}")
    return unpacked(contents.tensors, data[start:]), contents.names
