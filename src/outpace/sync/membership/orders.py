"""The facts about lost processes, the rules about them, and the orders of the membership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

OnLoss: TypeAlias = Literal["restart", "continue", "stop"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules about lost processes.

    on_loss: start another process for a lost worker, continue without the worker, or end the run.
    on_server_loss: begin again with as many servers, begin again without the lost ones, or end the
    run. can_start: False if no process can be started for one worker; `restart` is then `continue`.
    can_begin_again: False if not all processes can be started again. least: workers that the run
    needs. no_checkpoint, no_start: what an error adds if all cannot begin again because there is no
    checkpoint, and if no process is started for a worker. fence_s: seconds for the servers to
    confirm, and for the old process to end. start_s: for the new process to be ready.
    hopeless_s: a worker that dies DEATHS times or more, for so many seconds, and finishes no
    iteration meanwhile, ends the run.
    """

    on_loss: OnLoss = "restart"
    on_server_loss: OnLoss = "restart"
    can_start: bool = True
    can_begin_again: bool = True
    least: int = 1
    no_checkpoint: str = ""
    no_start: str = ""
    fence_s: float = 60.0
    start_s: float = 120.0
    hopeless_s: float = 300.0

    @property
    def replaces(self) -> bool:
        """True if another process takes the place of a lost worker."""
        return self.on_loss == "restart" and self.can_start


@dataclass(frozen=True, slots=True)
class Loss:
    """A process that is lost.

    how: in words. has_ended: False if it may still be alive. has_exited: it was not killed; one
    that ends itself would do so again.
    """

    name: str
    how: str
    has_ended: bool = True
    has_exited: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.how}"


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
class BeginAgain:
    """End all processes, and start all again.

    why: in words. lost: the names of processes without which the run cannot continue. checkpoint:
    from which all begin; 0: they begin as they did, because the training had not begun. without:
    names of processes that do not begin again.
    """

    why: str
    lost: Sequence[str]
    checkpoint: int = 0
    without: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run with this error. lost: see `BeginAgain`."""

    reason: str
    lost: Sequence[str] = ()


Order: TypeAlias = Replace | Kill | Start | Removed | BeginAgain | EndRun
