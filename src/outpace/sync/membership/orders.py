"""The rules about lost workers, and what the machine orders (`sync.membership.machine`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

OnLoss: TypeAlias = Literal["restart", "continue", "stop"]

DEATHS: Final = 5  # of a worker that finishes nothing, before the run may end


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules about a lost worker.

    on_loss: start another process, go on without the worker, or end the run. can_start: False if
    processes cannot be started; `restart` is then `continue`. fence_s: seconds for the servers to
    confirm, and for the old process to end. start_s: for the new process to be ready.
    hopeless_s: a worker that dies DEATHS times or more, for so many seconds, and finishes no
    iteration meanwhile, ends the run.
    """

    on_loss: OnLoss = "restart"
    can_start: bool = True
    fence_s: float = 60.0
    start_s: float = 120.0
    hopeless_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Replace:
    """Have a server hear only this generation of a worker; see `sync.messages.Lost` for `stays`."""

    server: str
    worker: int
    generation: int
    stays: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """End the old process of a worker, which may stand still."""

    worker: int


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process of this generation for a worker, which begins with iteration `first`.

    lost: gradients that some servers have of this worker and others lack, as far as they were not
    counted before.
    """

    worker: int
    generation: int
    first: int
    lost: int


@dataclass(frozen=True, slots=True)
class Removed:
    """The run goes on without a worker, or one that has finished was lost: all servers know it.

    lost: see `Start`.
    """

    worker: int
    lost: int


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run with this error."""

    reason: str


Order: TypeAlias = Replace | Kill | Start | Removed | EndRun
