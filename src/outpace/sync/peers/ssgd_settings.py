"""Synchronous SGD: all gradients of an iteration are averaged among the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from outpace.support.checks import positive, require

AllReduce: TypeAlias = Literal["ring", "tree"]  # which way the messages of a collective go
Wire: TypeAlias = Literal["full", "bf16"]  # in which precision they carry it (`precision`)
Buffers: TypeAlias = Literal["average", "own"]  # what workers do with those of a script's model
TIMEOUT_S: Final = 1800.0


def require_timeout(timeout_s: float) -> None:
    """Note it if workers could not wait so long for one that does not come."""
    require(positive(timeout_s), "timeout_s", "a positive number, at most 1e9", timeout_s)


@dataclass(frozen=True, slots=True)
class Ssgd:
    """An all-reduce in every step, and everybody takes the same step (`programs.ssgd`).

    With deterministic sums bitwise what `bsp` does with servers. timeout_s: for real, a worker
    that has not come to an all-reduce so long after the first one ends the run. buffers: of a
    script's model, such as BatchNorm's averages: averaged with the rest, or each worker's own.
    Raises ValueError if timeout_s is not positive.
    """

    all_reduce: AllReduce = "ring"
    wire: Wire = "full"
    timeout_s: float = TIMEOUT_S
    buffers: Buffers = "average"
    kind: Literal["ssgd"] = "ssgd"

    def __post_init__(self) -> None:
        require_timeout(self.timeout_s)
