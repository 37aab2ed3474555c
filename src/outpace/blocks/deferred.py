"""A block whose value is computed when somebody reads it, perhaps never."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Deferred:
    """Stands for a 1-D tensor of `length` entries; `compute()` gives it, once.

    Whoever receives it owns it, as any block.
    """

    __slots__ = ("_compute", "_length", "dtype", "nbytes")

    def __init__(self, length: int, dtype: torch.dtype, compute: Callable[[], torch.Tensor]):
        self._length, self.dtype, self._compute = length, dtype, compute
        self.nbytes: int = length * dtype.itemsize

    def numel(self) -> int:
        return self._length

    def value(self) -> torch.Tensor:
        """The tensor, which is the reader's: not to be asked for twice.

        Raises whatever the computation raises.
        """
        return self._compute()
