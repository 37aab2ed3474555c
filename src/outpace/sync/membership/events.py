"""The rules about the processes of a run, the events that happen to them, and the orders.

`decide` takes events and returns orders. Workers are named by their numbers where the messages
between processes name them so. All of this is data.
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
    that ends itself would do so again. since: when the loss was known first, or, in virtual time,
    when the process failed. kept: of a worker, the iteration at whose beginning the state was taken
    with which its script continues in another process.
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
    """All processes are started, for the first time or again.

    gone: numbers of workers that are not started. checkpoint: the last one of the run; 0: none.
    """

    workers: int
    servers: int
    gone: Collection[int] = ()
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class TrainingBegan:
    """All processes are ready, and train from now on."""


@dataclass(frozen=True, slots=True)
class CheckpointComplete:
    """A checkpoint is complete: all can begin again from it."""

    number: int


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The processes cannot train, for another reason than the loss of one. why: in words."""

    why: str


# -- events: processes -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessesLost:
    """Processes have ended, or are not heard any more.

    losses: the one that the error names first. is_ending: the run is about to end: lost workers
    are not replaced.
    """

    losses: Sequence[Loss]
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process of a worker that was lost has ended."""

    worker: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A server hears only this generation of a worker.

    watermark: highest iteration that it has of the worker; -1: none. clock: iterations that it has
    finished.
    """

    server: str
    worker: int
    generation: int
    watermark: int
    clock: int


@dataclass(frozen=True, slots=True)
class WorkerBegan:
    """The new process of a worker is ready, and takes part from now on."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerTrained:
    """A worker has done its part of the training; its process has not finished."""

    worker: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A process is done. A worker has told the servers that it leaves: its end is no loss."""

    name: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """Time has passed, perhaps a deadline of the table."""


# -- events: other numbers of processes ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskedToScale:
    """The run is asked to have other numbers of processes.

    workers, servers: None: as they are. asker: gets the answer. at: a value of
    time.monotonic_ns(), as the time of the run may begin anew before it has these numbers.
    """

    workers: int | None = None
    servers: int | None = None
    asker: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class PlacesFound:
    """The cluster has places for the new roles."""


@dataclass(frozen=True, slots=True)
class NoPlaces:
    """The cluster has no places for the new roles in time. why: in words."""

    why: str


@dataclass(frozen=True, slots=True)
class TooFewPlaces:
    """The cluster has places for so many processes only, when all begin again or some are lost.

    workers, servers: None: for all. why: in words. at: see `AskedToScale`.
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
    """All servers know that the run continues without a worker, or that one was lost at its end.

    Of a worker that has finished only if gradients are lost. lost: see `Start`.
    """

    worker: int
    lost: int


@dataclass(frozen=True, slots=True)
class BeginAgain:
    """End all processes, and start all again.

    why: in words. workers, servers: how many begin. checkpoint: from which all begin; 0: they begin
    as they did, because the training had not begun. lost: the losses after which the others cannot
    continue; none: other numbers were asked for. without: names of processes that do not begin
    again.
    """

    why: str
    workers: int
    servers: int
    checkpoint: int = 0
    lost: Sequence[Loss] = ()
    without: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run with this error. lost: see `BeginAgain`."""

    reason: str
    lost: Sequence[Loss] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Ask the cluster for places for these new roles."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Save:
    """Take a checkpoint now."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Tell the asker that the run trains with other numbers.

    before: the numbers of workers and servers. asked_at: see `AskedToScale`.
    """

    asker: str
    before: tuple[int, int]
    asked_at: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Tell the asker that the run keeps the numbers that it had. why: in words."""

    asker: str
    why: str


Order: TypeAlias = (
    Replace | Kill | Start | Removed | BeginAgain | EndRun | Reserve | Save | Scaled | Unchanged
)
