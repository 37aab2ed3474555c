"""Recorded run times as a table: iterations by workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Seconds: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Nodes: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RunTimes:
    """How long each of N workers took for each of T iterations, one after the other.

    seconds: shape (T, N). Where `censored`, the worker was stopped after that long and would
    have taken longer. NaN: nobody knows (the worker was not there).
    censored: shape (T, N).
    node: shape (N,), from 0: workers on one node tend to slow down together.
    """

    seconds: Seconds
    censored: Mask
    node: Nodes

    @property
    def iterations(self) -> int:
        return len(self.seconds)

    @property
    def workers(self) -> int:
        return len(self.node)
