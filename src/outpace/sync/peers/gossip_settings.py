"""Gossip: workers average with one other at a time (AD-PSGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Gossip:
    """While it computes, a worker averages its parameters with those of another at random.

    Asynchronous decentralized parallel SGD (Lian, Zhang, Zhang and Liu, ICML 2018, algorithm 1)
    with everybody for a neighbour: nobody waits for all, and the mean of the parameters
    is changed by gradients alone.
    """

    kind: Literal["gossip"] = "gossip"
