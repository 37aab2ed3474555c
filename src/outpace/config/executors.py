"""How the computer that simulates a run computes its gradients.

The choice changes how long the simulation takes, never the virtual time of the run. All
but `batched` give bitwise the same results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from outpace.support.checks import require

_MOST = 1024


@dataclass(frozen=True, slots=True)
class Auto:
    """Serial at first, and in processes once the run proves to be a long one."""

    kind: Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class Serial:
    """One gradient after the other, when its value is needed. The reference."""

    kind: Literal["serial"] = "serial"


@dataclass(frozen=True, slots=True)
class Processes:
    """Ahead of time in other processes, one thread each.

    processes: None: one for each core, at most one for each worker.
    """

    processes: int | None = None
    kind: Literal["processes"] = "processes"

    def __post_init__(self) -> None:
        if self.processes is not None:
            require(0 < self.processes <= _MOST, "processes", "from 1 to 1024", self.processes)


@dataclass(frozen=True, slots=True)
class Batched:
    """Up to `width` gradients at once, by `torch.func.vmap`.

    Not bitwise equal to the others, and not always faster. device: for instance cuda; None:
    the model's.
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
