"""The launchers, which start the processes of a real run: `launcher: {kind: ray}`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from outpace.support.checks import KINDS, check_ranges, require

MOST_WAIT_S: Final = 1e6
MOST_ELASTIC: Final = 1000

Placement: TypeAlias = Literal["pack", "spread", "strict-pack", "strict-spread"]
"""pack: on few nodes. spread: on many. strict: on exactly one, or each on a separate node."""


@dataclass(frozen=True, slots=True)
class RoleResources:
    """The processors and GPUs that each process of a role uses; they may be fractions.

    Attributes:
        cpu: number of processors.
        gpu: number of GPUs.
    """

    cpu: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    gpu: Annotated[float, Field(ge=0, le=1e6)] = 0.0

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.cpu == self.gpu == 0:
            raise ValueError("needs more than 0 of cpu or gpu")


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of the processes of a run, by role.

    Attributes:
        worker, server: resources of each process of the role.
    """

    worker: RoleResources = field(default_factory=RoleResources)
    server: RoleResources = field(default_factory=RoleResources)


@dataclass(frozen=True, slots=True)
class Elastic:
    """Changes the number of a run's processes when nodes of its cluster are added or removed.

    Attributes:
        workers, servers: the smallest and the largest number; empty: the number does not change.
        settle_s: seconds for which the nodes must have been unchanged before the number changes.
    """

    workers: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()
    settle_s: Annotated[float, Field(gt=0, le=3600)] = 10.0

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.workers and not self.servers:
            raise ValueError(
                "needs workers, servers, or both: the least and the most, such as [2, 8]"
            )
        for key in ("workers", "servers"):
            given = getattr(self, key)
            is_range = not given or (len(given) == 2 and 1 <= given[0] <= given[1] <= MOST_ELASTIC)
            must = f"two numbers from 1 to {MOST_ELASTIC}, the least and the most, such as [2, 8]"
            require(is_range, key, must, list(given))


@dataclass(frozen=True, slots=True)
class Local:
    """Runs all processes on this machine; this process starts them."""

    kind: Literal["local"] = "local"


@dataclass(frozen=True, slots=True)
class Ray:
    """Runs the processes on a Ray cluster; the coordinator is in this process.

    Attributes:
        address: HOST:PORT of the cluster; auto: a cluster that runs on this machine; local: a
            cluster that is started on this machine, and stopped after the run. None: RAY_ADDRESS,
            else auto, else local.
        workers, servers: where the processes are placed.
        wait_s: seconds to wait for the resources, and for the nodes to answer.
        runtime_env: the environment of the processes, as Ray describes it.
        elastic: bounds of the numbers of workers and servers, which follow the nodes of the
            cluster; None: the numbers do not change.
        resources: what each process takes up.
    """

    address: str | None = None
    resources: Resources = field(default_factory=Resources)
    workers: Placement = "pack"
    servers: Placement = "spread"
    wait_s: Annotated[float, Field(gt=0, le=MOST_WAIT_S)] = 60.0
    runtime_env: dict[str, Any] = field(default_factory=dict)
    elastic: Elastic | None = None
    kind: Literal["ray"] = "ray"

    def __post_init__(self) -> None:
        check_ranges(self)


# If another launcher is added, type checking finds the places that do not handle it.
LauncherKind: TypeAlias = Annotated[Local | Ray, KINDS]
