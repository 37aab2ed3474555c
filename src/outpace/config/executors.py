"""Executors: how the host computes the gradients of a simulated run.

The executor changes how long the simulation takes, never the virtual time of the run. All
executors except `batched` give bitwise equal results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from outpace.support.checks import KINDS, check_ranges

AtOnce: TypeAlias = Annotated[int, Field(ge=1, le=1024)]


@dataclass(frozen=True, slots=True)
class Auto:
    """Computes gradients serially at first, and in several processes if the run takes long."""

    kind: Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class Serial:
    """Computes each gradient when its value is needed: the reference for the other executors."""

    kind: Literal["serial"] = "serial"


@dataclass(frozen=True, slots=True)
class Processes:
    """Computes gradients ahead of time in other processes, one thread each.

    Attributes:
        processes: number of processes; None: one per core, at most one per worker.
    """

    processes: AtOnce | None = None
    kind: Literal["processes"] = "processes"

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True)
class Batched:
    """Computes up to `width` gradients at once by `torch.func.vmap`.

    The results differ in rounding from the results of other executors, and the computation is not
    always faster.

    Attributes:
        width: number of gradients that are computed at once, at most.
        device: for instance cuda; None: the model's device.
    """

    width: AtOnce = 64
    device: str | None = None
    kind: Literal["batched"] = "batched"

    def __post_init__(self) -> None:
        check_ranges(self)


Executor: TypeAlias = Annotated[Auto | Serial | Processes | Batched, KINDS]
