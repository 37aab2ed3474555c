"""The rules about the processes of a run, the events that happen to them, and the orders.

`decide` takes events and returns orders. Workers are given by number or by name, as in the messages
between processes. All of this is data.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from outpace.support.units import Time

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
    confirm, and for the old process to end. start_s: seconds for the new process to become ready.
    hopeless_s: the run ends if a worker dies DEATHS times or more within at least this many seconds
    and finishes no iteration meanwhile.
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
    """A lost process.

    how: text that says how it was lost. has_ended: False if it may still be alive. has_exited: True
    if it was not killed but exited by itself, and so would exit again. since: when the loss was
    first known, or, in virtual time, when the process failed. kept: for a worker, the iteration
    from whose beginning its script continues in another process, with the state that was saved
    then.
    """

    name: str
    how: str
    has_ended: bool = True
    has_exited: bool = False
    since: Time = 0
    kept: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.how}"


# -- events: attempts --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllBegin:
    """Event: all processes are started, for the first time or again.

    gone: numbers of workers that are not started. checkpoint: the last checkpoint of the run; 0:
    none.
    """

    workers: int
    servers: int
    gone: Collection[int] = ()
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class TrainingBegan:
    """Event: all processes are ready, and train from now on."""


@dataclass(frozen=True, slots=True)
class CheckpointComplete:
    """Event: a checkpoint is complete, so all can begin again from it."""

    number: int


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """Event: the processes cannot train, although none is lost. why: text of the reason."""

    why: str


# -- events: processes -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessesLost:
    """Event: processes have ended, or do not respond any more.

    losses: all lost processes; the error names the first one first. is_ending: the run is about to
    end, so lost workers are not replaced.
    """

    losses: Sequence[Loss]
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """Event: the process of a lost worker has ended."""

    worker: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Event: a server accepts only this generation of a worker.

    watermark: highest iteration that the server has of the worker; -1: none. clock: number of
    iterations that the server has finished.
    """

    server: str
    worker: int
    generation: int
    watermark: int
    clock: int


@dataclass(frozen=True, slots=True)
class WorkerBegan:
    """Event: the new process of a worker is ready, and trains from now on."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerTrained:
    """Event: a worker has done its part of the training; its process has not finished."""

    worker: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Event: a process has finished. If it is a worker's, the servers know that it leaves."""

    name: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """Event: time has passed, and perhaps a deadline of the table."""


# -- events: other numbers of processes ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskedToScale:
    """Event: somebody has requested other numbers of processes.

    workers, servers: the new numbers; None: unchanged. asker: receives the answer. at: a value of
    time.monotonic_ns(), because the time of the run may start again before the run has these
    numbers.
    """

    workers: int | None = None
    servers: int | None = None
    asker: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class PlacesFound:
    """Event: the cluster has places for the new roles."""


@dataclass(frozen=True, slots=True)
class NoPlaces:
    """Event: the cluster has no places for the new roles in time. why: text of the reason."""

    why: str


@dataclass(frozen=True, slots=True)
class TooFewPlaces:
    """Event: when all begin again or some are lost, the cluster has too few places.

    workers, servers: the number of places; None: enough for all. why: text of the reason. at: see
    `AskedToScale`.
    """

    why: str
    workers: int | None = None
    servers: int | None = None
    at: int = 0


Event: TypeAlias = (
    AllBegin
    | TrainingBegan
    | CheckpointComplete
    | AttemptFailed
    | ProcessesLost
    | ProcessEnded
    | Confirmed
    | WorkerBegan
    | WorkerTrained
    | Finished
    | DeadlinePassed
    | AskedToScale
    | PlacesFound
    | NoPlaces
    | TooFewPlaces
)


# -- orders ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replace:
    """Order: let a server accept only this generation of a worker. stays: see `messages.Lost`."""

    server: str
    worker: int
    generation: int
    stays: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """Order: end the old process of a worker, which may be stopped."""

    worker: int


@dataclass(frozen=True, slots=True)
class Start:
    """Order: start a worker's process of this generation, which begins with iteration `first`.

    lost: number of this worker's gradients that some servers have and others lack, without
    gradients that were counted at an earlier loss.
    """

    worker: int
    generation: int
    first: int
    lost: int


@dataclass(frozen=True, slots=True)
class Removed:
    """Order: note that the run continues without a worker, or that it was lost at its end.

    All servers know it. For a worker that has finished, this is ordered only if gradients are lost.
    lost: see `Start`.
    """

    worker: int
    lost: int


@dataclass(frozen=True, slots=True)
class BeginAgain:
    """Order: end all processes, and start all again.

    why: text of the reason. workers, servers: how many begin. checkpoint: the checkpoint from which
    all begin; 0: they begin as the first time, because the training had not begun. lost: the losses
    after which the others cannot continue; empty: other numbers were requested. without: names of
    processes that do not begin again.
    """

    why: str
    workers: int
    servers: int
    checkpoint: int = 0
    lost: Sequence[Loss] = ()
    without: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EndRun:
    """Order: end the run with this error. lost: see `BeginAgain`."""

    reason: str
    lost: Sequence[Loss] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Order: ask the cluster for places for these new roles."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Save:
    """Order: take a checkpoint now."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Order: tell the asker that the run trains with other numbers.

    before: the numbers of workers and servers. asked_at: see `AskedToScale`.
    """

    asker: str
    before: tuple[int, int]
    asked_at: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Order: tell the asker that the run keeps its numbers. why: text of the reason."""

    asker: str
    why: str


Order: TypeAlias = (
    Replace | Kill | Start | Removed | BeginAgain | EndRun | Reserve | Save | Scaled | Unchanged
)
