"""Who computes the gradients of a simulated run: the computer that it is simulated on.

The choice changes how long a run takes on that computer, never its virtual time. All but
`batched` give bitwise the same results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from outpace.support.checks import require

_MOST = 1024


@dataclass(frozen=True, slots=True)
class Auto:
    """Serial, and in processes once a run has turned out to be a long one."""

    kind: Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class Serial:
    """One after the other, when their values are needed. The reference."""

    kind: Literal["serial"] = "serial"


@dataclass(frozen=True, slots=True)
class Processes:
    """Ahead of time in so many other processes, one thread each.

    None: one for each core, at most one for each worker.
    """

    processes: int | None = None
    kind: Literal["processes"] = "processes"

    def __post_init__(self) -> None:
        if self.processes is not None:
            require(0 < self.processes <= _MOST, "processes", "from 1 to 1024", self.processes)


@dataclass(frozen=True, slots=True)
class Batched:
    """Up to `width` at once, by `torch.func.vmap`: not bitwise equal, and not always faster.

    device: where, for instance cuda; None: where the model is.
    """

    width: int = 64
    device: str | None = None
    kind: Literal["batched"] = "batched"

    def __post_init__(self) -> None:
        require(0 < self.width <= _MOST, "width", "from 1 to 1024", self.width)


@dataclass(frozen=True, slots=True)
class Fastest:
    """`batched` if that is faster in a short measurement, else `auto`."""

    width: int = 64
    kind: Literal["fastest"] = "fastest"

    def __post_init__(self) -> None:
        require(0 < self.width <= _MOST, "width", "from 1 to 1024", self.width)


Executor: TypeAlias = Auto | Serial | Processes | Batched | Fastest
