"""Compares nested data, such as the states of optimizers."""

from __future__ import annotations

from typing import Any

import torch


def same(one: Any, other: Any) -> bool:
    """Compare nested data bitwise."""
    if isinstance(one, torch.Tensor):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
