"""Estimates the laws of machines and links from recorded data; pure functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A table whose fields are columns: arrays of equal length."""

    def where(self, chosen: Flags | Ints) -> Self:
        """Return the chosen rows. chosen: a mask, or the places of the rows."""
        return type(self)(*(getattr(self, entry.name)[chosen] for entry in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts."""
        names = [entry.name for entry in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
