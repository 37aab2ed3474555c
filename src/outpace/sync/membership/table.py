"""The table of the processes of a run, in every runtime: its members, and how far each is.

Theory of operation
-------------------

The table is frozen data. `decide(table, event, now)` returns another table and the orders that
follow. It neither sends nor waits, so that the real coordinator, simulated failures and the random
search of the tests drive the same decisions. An event that cannot happen raises ProtocolError, and
as the table is frozen nothing has changed then.

There are two recoveries:

- A worker of a run with servers is replaced alone, or the others continue without it.
- After every other loss all processes begin again from the last checkpoint: servers and models are
  as they were then, so nothing is applied twice, and the workers repeat all later iterations, so
  nothing is missing. Before the training begins, all begin as the first time.

Each process of a worker has a generation. When it is lost, all servers are first told to accept
only messages of a new generation under its name (`Replace`). Each server confirms this, and reports
how many iterations of the worker it has. From then on no message of the old process can be applied,
even if it is still alive. When the old process has also ended, a new process is started with the
first iteration that no server has of this worker (see `sync.checkpoint.state`). If no process takes
its place, the worker has left the run.

If a cluster has no room for the next processes of lost workers, all begin again with those that
have room (`TooFewPlaces`).

A worker that has finished has told the servers. If its process is killed after that, its last
message may not have reached all servers, so the servers are told that it has left.

A task can compute any iteration again. A script continues with its last saved state (`Loss.kept`):
earlier iterations that a server lacks, because their push had not arrived, are lost.

A request for other numbers of processes (`AskedToScale`) is another reason to begin again. A
checkpoint is taken for it. Before, places on the cluster are reserved for new roles. If the run
does not get to training with the new numbers, all begin again with the old numbers (`Change`).

The states of a worker
----------------------

`NEXT` is the table of states; a server is ACTIVE until it is FINISHED. ::

    ACTIVE --lost--> FENCING --fenced--> STARTING --began--> ACTIVE
      |                |                   |  lost: FENCING again
      |                +------ left -------+
      |                         |
      +-------- left -------> LEAVING --told--> GONE
      +-------- gone (no server is to be told) ---^
      |
      +------ finished -----> FINISHED --lost--> CLOSING --told--> CLOSED
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, Literal, TypeAlias

from outpace.errors import ProtocolError
from outpace.support.units import Time
from outpace.sync.membership.events import Rules


class Phase(Enum):
    """How far the process of a role is."""

    ACTIVE = auto()  # the process joins, or trains
    FENCING = auto()  # lost; the servers are told, or the old process has not ended
    STARTING = auto()  # another process is started in its place
    LEAVING = auto()  # the run continues without it; the servers are told
    GONE = auto()  # all servers know that the run continues without it
    FINISHED = auto()
    CLOSING = auto()  # it had finished; its process was killed, and the servers are told
    CLOSED = auto()  # it had finished, its process was killed, and all servers know it


What: TypeAlias = Literal["lost", "left", "gone", "fenced", "began", "told", "finished"]

NEXT: Final[Mapping[tuple[Phase, What], Phase]] = {
    (Phase.ACTIVE, "lost"): Phase.FENCING,
    (Phase.ACTIVE, "left"): Phase.LEAVING,
    (Phase.ACTIVE, "gone"): Phase.GONE,
    (Phase.ACTIVE, "finished"): Phase.FINISHED,
    (Phase.FENCING, "fenced"): Phase.STARTING,
    (Phase.FENCING, "left"): Phase.LEAVING,
    (Phase.STARTING, "began"): Phase.ACTIVE,
    (Phase.STARTING, "lost"): Phase.FENCING,
    (Phase.STARTING, "left"): Phase.LEAVING,
    (Phase.STARTING, "gone"): Phase.GONE,
    (Phase.STARTING, "finished"): Phase.FINISHED,
    (Phase.LEAVING, "told"): Phase.GONE,
    (Phase.FINISHED, "lost"): Phase.CLOSING,
    (Phase.FINISHED, "gone"): Phase.CLOSED,
    (Phase.CLOSING, "told"): Phase.CLOSED,
}

# the process has finished
_SETTLED: Final = (Phase.ACTIVE, Phase.GONE, Phase.FINISHED, Phase.CLOSED)


@dataclass(frozen=True, slots=True)
class Role:
    """A server or a worker. Only the first three fields are used for servers.

    Attributes:
        generation: generation of the only process whose messages are accepted.
        first: iteration with which the present process has begun.
        done: number of iterations whose pushes by earlier processes have reached some server.
        kept: see `Loss`.
        has_ended: True if the process that was lost has ended.
        has_trained: True if its part of the training is done.
        unconfirmed: names of servers that have not confirmed the generation.
        reached: for each server that has confirmed, the highest iteration of the worker, and the
            clock.
        deadline: time when the run ends unless the worker makes progress.
        deaths: times of its losses since it last finished an iteration.
        how: text that says how its process was lost.
        counted: iteration up to which the gradients that some server lacks have been counted as
            lost.
    """

    name: str
    number: int
    phase: Phase = Phase.ACTIVE
    generation: int = 0
    first: int = 0
    done: int = 0
    kept: int = 0
    has_ended: bool = False
    has_trained: bool = False
    unconfirmed: frozenset[str] = frozenset()
    reached: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    deadline: Time | None = None
    deaths: tuple[Time, ...] = ()
    how: str = ""
    counted: int = -1

    def then(self, what: What) -> Role:
        """Return this role after an event. Raises ProtocolError if the event cannot happen."""
        phase = NEXT.get((self.phase, what))
        if phase is None:
            raise ProtocolError(f"{self.name} is {self.phase.name.lower()}: {what} cannot be")
        return replace(self, phase=phase)

    @property
    def is_starting(self) -> bool:
        """True if a new process of this worker is to be started, or is not ready yet."""
        return self.phase is Phase.STARTING

    @property
    def is_coming_back(self) -> bool:
        """True if the worker's process is lost, and another one will take its place."""
        return self.phase in (Phase.FENCING, Phase.STARTING)

    @property
    def awaits_end(self) -> bool:
        """True if the process of a lost worker is not known to have ended."""
        return self.phase is Phase.FENCING and not self.has_ended

    @property
    def has_left(self) -> bool:
        """True if the run continues without this worker."""
        return self.phase in (Phase.LEAVING, Phase.GONE)

    @property
    def has_finished(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.CLOSING, Phase.CLOSED)


@dataclass(frozen=True, slots=True)
class Change:
    """New numbers of processes, from the request until the run trains with them.

    Attributes:
        before: the old numbers of workers and servers.
        asker, at: see `AskedToScale`.
        waits_for: the event that the change waits for: places for the new roles, the next
            checkpoint, or the beginning of the training.
        can_return: False if there is no room for the old numbers.
    """

    workers: int
    servers: int
    before: tuple[int, int]
    asker: str
    at: int
    waits_for: Literal["places", "checkpoint", "training"]
    can_return: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """The roles of a run, in all attempts one after the other.

    Attributes:
        schedulers: names of processes, besides servers, that receive messages of workers.
        checkpoint: number of the last checkpoint; 0: there is none.
        attempt: how often all processes have begun.
        has_begun: True once the training of this attempt has begun.
        generation: the newest generation of this attempt.
        change: the requested change of numbers; None: there is none.
        began_from, losses: the checkpoint from which all last began again after a loss, and how
            often they have done so.
        early: number of losses in a row before the training.
    """

    rules: Rules
    schedulers: tuple[str, ...] = ()
    workers: tuple[Role, ...] = ()
    servers: tuple[Role, ...] = ()
    checkpoint: int = 0
    attempt: int = 0
    has_begun: bool = False
    generation: int = 0
    change: Change | None = None
    began_from: int = 0
    losses: int = 0
    early: int = 0

    def having(self, role: Role) -> Table:
        """Return this table with this row in place of the row of the same name."""
        if role.name in self.server_names:
            servers = (*self.servers[: role.number], role, *self.servers[role.number + 1 :])
            return replace(self, servers=servers)
        workers = (*self.workers[: role.number], role, *self.workers[role.number + 1 :])
        return replace(self, workers=workers)

    def role(self, name: str) -> Role:
        """Return the row of a server or worker. Raises KeyError if there is none."""
        return {each.name: each for each in self.servers + self.workers}[name]

    @property
    def server_names(self) -> list[str]:
        return [server.name for server in self.servers]

    def can_spare(self, *names: str) -> bool:
        """True if the run can continue when these workers are lost."""
        if self.rules.on_loss == "stop":
            return False
        others = (worker for worker in self.workers if worker.name not in names)
        return self.rules.replaces or any(not other.has_left for other in others)

    @property
    def absent(self) -> list[str]:
        """Names of the workers that are lost and not replaced."""
        return [worker.name for worker in self.workers if worker.has_left]

    @property
    def returning(self) -> list[str]:
        """Names of the lost workers whose places other processes take."""
        return [worker.name for worker in self.workers if worker.is_coming_back]

    @property
    def is_over(self) -> bool:
        """True if each worker has finished or is gone."""
        return all(worker.phase in (Phase.GONE, Phase.FINISHED) for worker in self.workers)

    @property
    def is_settled(self) -> bool:
        """True if all servers know the state of all workers, and no worker is coming back."""
        return all(worker.phase in _SETTLED for worker in self.workers)

    @property
    def next_deadline(self) -> Time | None:
        due = (worker.deadline for worker in self.workers)
        return min((each for each in due if each is not None), default=None)
