"""Sums of the bits of tensors, which differ if the tensors do, in all likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprints(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the sum of the bits of each tensor, taken as integers: exact, in one pass."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    return [int(each.view(_INTEGERS[each.itemsize]).sum(dtype=torch.int64)) for each in flat]
