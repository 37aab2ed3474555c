"""Executors: how the host computes the gradients of a simulated run.

The executor changes how long the simulation takes, never the virtual time of the run. All
executors except `batched` give bitwise equal results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from outpace.support.checks import require

_MOST = 1024


@dataclass(frozen=True, slots=True)
class Auto:
    """Computes gradients serially at first, and in processes once the run proves long."""

    kind: Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class Serial:
    """Computes each gradient when its value is needed: the reference for other executors."""

    kind: Literal["serial"] = "serial"


@dataclass(frozen=True, slots=True)
class Processes:
    """Computes gradients ahead of time in other processes, one thread each.

    processes: number of processes; None: one per core, at most one per worker.

    Attributes:
        processes: number of processes; None: one per core, at most one per worker.
    """

    processes: int | None = None
    kind: Literal["processes"] = "processes"

    def __post_init__(self) -> None:
        if self.processes is not None:
            require(0 < self.processes <= _MOST, "processes", "from 1 to 1024", self.processes)


@dataclass(frozen=True, slots=True)
class Batched:
    """Computes up to `width` gradients at once by `torch.func.vmap`.

    The results differ from other executors' in rounding, and it is not always faster.
    device: for instance cuda; None: the model's device.

    Attributes:
        width: gradients at once, at most.
        device: for instance cuda; None: the model's device.
    """

    width: int = 64
    device: str | None = None
    kind: Literal["batched"] = "batched"

    def __post_init__(self) -> None:
        require(0 < self.width <= _MOST, "width", "from 1 to 1024", self.width)


Executor: TypeAlias = Auto | Serial | Processes | Batched
