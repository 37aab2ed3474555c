"""A block whose value is computed when it is read, perhaps never."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Deferred:
    """Stands for a 1-D tensor of `length` entries that `compute()` returns.

    As with any block, the receiver owns it.
    """

    __slots__ = ("_compute", "_length", "dtype", "nbytes")

    def __init__(self, length: int, dtype: torch.dtype, compute: Callable[[], torch.Tensor]):
        self._length, self.dtype, self._compute = length, dtype, compute
        self.nbytes: int = length * dtype.itemsize

    def numel(self) -> int:
        return self._length

    def value(self) -> torch.Tensor:
        """Compute the tensor, which then belongs to the caller; to be called once.

        Raises whatever the computation raises.
        """
        return self._compute()
