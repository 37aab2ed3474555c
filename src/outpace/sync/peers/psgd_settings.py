"""Parallel SGD without communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Psgd:
    """Each worker trains alone; what comes out is the average of their parameters.

    Zinkevich, Weimer, Smola and Li, Parallelized stochastic gradient descent, NIPS 2010. The
    speed that nobody can exceed who communicates: a baseline.
    """

    kind: Literal["psgd"] = "psgd"
