"""Synchronous SGD: all gradients of an iteration are averaged among the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

AllReduce: TypeAlias = Literal["ring", "tree"]  # which way the messages of a collective go
Wire: TypeAlias = Literal["full", "bf16"]  # in which precision they carry it (`precision`)


@dataclass(frozen=True, slots=True)
class Ssgd:
    """An all-reduce in every step, and everybody takes the same step (`programs.ssgd`).

    With deterministic sums bitwise what `bsp` does with servers.
    """

    all_reduce: AllReduce = "ring"
    wire: Wire = "full"
    kind: Literal["ssgd"] = "ssgd"
