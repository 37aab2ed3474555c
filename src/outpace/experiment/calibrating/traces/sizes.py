"""Bytes of tensors, from the shapes and types that a trace names."""

from __future__ import annotations

import math
from typing import Any, Final

_MOST: Final = 10**15  # bytes; more is no size of a tensor
# By c10's names of types, which collectives have, and by C++'s, which operations have.
_BYTES: Final = {
    "byte": 1, "char": 1, "bool": 1, "unsigned char": 1, "signed char": 1,
    "short": 2, "half": 2, "bfloat16": 2, "short int": 2, "c10::half": 2, "c10::bfloat16": 2,
    "int": 4, "float": 4,
    "long": 8, "double": 8, "long int": 8, "complexfloat": 8,
}  # fmt: skip


def size_of_elements(count: Any, dtype: Any) -> int | None:
    """Return the bytes of so many elements of a type; None if either is unknown."""
    each = _bytes(dtype)
    if type(count) is not int or each is None or not 0 < count * each <= _MOST:
        return None
    return count * each


def size_of_dims(dims: Any, types: Any) -> int | None:
    """Return the bytes of all tensors of an operation; None if they are unknown.

    Args:
        dims: Shapes of the inputs; a list of tensors has a list of shapes.
        types: The types of the inputs.
    """
    if not isinstance(dims, list) or not isinstance(types, list) or not dims:
        return None
    total = 0
    for shape, dtype in zip(dims, types, strict=False):
        each = _bytes(dtype)
        if each is None or not isinstance(shape, list):
            continue
        total += each * _elements(shape)
    return total if 0 < total <= _MOST else None


def _elements(shape: list[Any]) -> int:
    if any(isinstance(part, list) for part in shape):
        return sum(_elements(part) for part in shape if isinstance(part, list))
    return math.prod(part for part in shape if isinstance(part, int))


def _bytes(dtype: Any) -> int | None:
    if not isinstance(dtype, str):
        return None
    name = dtype.lower()
    return 1 if name.startswith("float8") else _BYTES.get(name)
