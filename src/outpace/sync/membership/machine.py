"""Decides what is done when the process of a worker is lost in a run with servers. Without any IO.

Each process has a generation. When a worker's process is lost, all servers are told first to hear
only a process of a new generation under its name (`Replace`). Each confirms it, and says how far
the worker has come there. From then on nothing of the old process can be applied, even if it is
still alive. Once the old process has ended, too, a new one is started with the first iteration
that no server has of this worker (see `sync.checkpoint.state`). Or no process takes its place, and
the worker has left the run.

If a lost worker finds no room for another process, the run may go on without it after all
(`goes_without`): the servers, which wait for it, are told that it has left.

A worker that has finished has told the servers so. If its process is lost nevertheless, its last
message may not have reached all of them, so the servers are told as if it had left.

A task computes any iteration again. A script goes on with what it keeps (`keeps`): the iterations
before that which a server lacks, because the push was on its way, are lost.

The machine is told what has happened, at non-decreasing times, and returns what is to be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal, TypeAlias

from outpace.errors import ProtocolError
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import worker_name

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


class Phase(Enum):
    """The part that a worker takes in the run."""

    HERE = auto()
    FENCING = auto()  # lost; the servers are told, or the old process has not ended
    STARTING = auto()
    LEAVING = auto()  # the run goes on without it; the servers are told
    GONE = auto()  # all servers know that the run goes on without it
    FINISHED = auto()
    ENDED = auto()  # as FINISHED; its process was lost, and the servers are told
    TOLD = auto()  # as ENDED, and all servers know it


AWAY: Final = (Phase.LEAVING, Phase.GONE)
SETTLED: Final = (Phase.HERE, Phase.GONE, Phase.FINISHED, Phase.TOLD)  # no answer is awaited


@dataclass(slots=True)
class Worker:
    """The facts that the machine keeps of one worker."""

    number: int
    phase: Phase = Phase.HERE
    generation: int = 0
    first: int = 0  # iteration of the present process
    done: int = 0  # iterations that some server has of the processes before
    kept: int = 0  # iteration at which what its script keeps was sent last
    has_ended: bool = False  # the process that was lost
    unconfirmed: set[str] = field(default_factory=set)
    reached: dict[str, tuple[int, int]] = field(default_factory=dict)  # watermark, clock by server
    deadline: Time | None = None
    deaths: list[Time] = field(default_factory=list)  # since it finished an iteration
    how: str = ""  # its process was lost
    counted: int = -1  # last iteration up to which those that some server lacks were counted

    @property
    def name(self) -> str:
        return worker_name(self.number)

    def has_at(self, server: str) -> int:
        """Return the last iteration that a server has, or has finished without this worker."""
        watermark, clock = self.reached[server]
        return max(watermark, clock - 1)


class Membership:
    """The workers of a run with servers, from the moment at which the training begins.

    Args:
        workers: how many.
        servers: names of those that take gradients of the workers.
        schedulers: names of others that hear the workers.
    """

    def __init__(
        self, workers: int, servers: Sequence[str], rules: Rules, schedulers: Sequence[str] = ()
    ) -> None:
        self._workers = [Worker(number) for number in range(workers)]
        self._servers, self._schedulers, self._rules = tuple(servers), tuple(schedulers), rules
        self._generation = 0  # the newest

    # -- what others ask -------------------------------------------------------------

    def generation(self, worker: int) -> int:
        """Return the only generation of this worker that is heard."""
        return self._workers[worker].generation

    def done(self, worker: int) -> int:
        """Return how many iterations some server has of a worker that was lost."""
        return self._workers[worker].done

    def is_starting(self, worker: int) -> bool:
        """True if a new process of this worker is expected, or not ready yet."""
        return self._workers[worker].phase is Phase.STARTING

    def is_coming_back(self, worker: int) -> bool:
        """True if the worker's process is lost, and another one will take its place."""
        return self._workers[worker].phase in (Phase.FENCING, Phase.STARTING)

    def awaits_end(self, worker: int) -> bool:
        """True if the process of a lost worker has not ended, as far as it is known."""
        known = self._workers[worker]
        return known.phase is Phase.FENCING and not known.has_ended

    def can_spare(self, worker: int) -> bool:
        """True if the run can go on when this worker is lost."""
        others = (known for known in self._workers if known.number != worker)
        if self._rules.on_loss == "stop":
            return False
        return self._restarts or any(other.phase not in AWAY for other in others)

    @property
    def is_settled(self) -> bool:
        """True if all servers know of all workers as they are, and none comes back."""
        return all(known.phase in SETTLED for known in self._workers)

    @property
    def next_deadline(self) -> Time | None:
        due = (known.deadline for known in self._workers)
        return min((each for each in due if each is not None), default=None)

    def has_left(self, worker: int) -> bool:
        """True if the worker takes no part, because it has left or the run goes on without it."""
        return self._workers[worker].phase in (Phase.LEAVING, Phase.GONE)

    # -- what has happened ---------------------------------------------------------------

    def lost(self, worker: int, how: str, now: Time, *, has_ended: bool) -> list[Order]:
        """The present process of a worker has ended, or is not heard any more.

        how: in words, for an error. has_ended: False if it may still be alive.
        """
        known = self._workers[worker]
        if known.phase is Phase.FENCING:
            return self.process_ended(worker, now) if has_ended else []
        if known.phase in (*AWAY, Phase.ENDED, Phase.TOLD):
            return []
        if known.phase is Phase.FINISHED:
            known.phase = Phase.ENDED
            return self._replaced(known, self._servers, stays=False)
        if not self.can_spare(worker):
            return [EndRun(f"{known.name} {how}")]
        known.how, known.has_ended = how, has_ended
        stays = self._restarts
        # A scheduler that no longer waits for the worker lets the others pull. If a server still
        # waited, their pulls would miss an iteration: the scheduler is told after the servers.
        told = self._servers + self._schedulers if stays else self._servers
        orders = self._replaced(known, told, stays=stays)
        if not has_ended:
            orders.append(Kill(worker))
        if not stays:
            known.phase, known.deadline = Phase.LEAVING, None
            return orders
        known.phase, known.deadline = Phase.FENCING, now + nanoseconds(self._rules.fence_s)
        known.deaths.append(now)
        return orders

    def goes_without(self, worker: int) -> list[Order]:
        """No process takes the place of a lost worker after all, for want of room: it has left.

        Raises:
            ProtocolError: the worker is not coming back, or no other one is left.
        """
        known = self._workers[worker]
        others = (other for other in self._workers if other.number != worker)
        if not self.is_coming_back(worker) or all(other.phase in AWAY for other in others):
            raise ProtocolError(f"the run cannot go on without {known.name} now")
        known.phase, known.deadline = Phase.LEAVING, None
        return self._replaced(known, self._servers, stays=False)

    def keeps(self, worker: int, iteration: int) -> None:
        """The next process of a worker, whose process is lost, begins with a script's state.

        iteration: at the beginning of which its script was in this state. Call before `lost`.
        """
        self._workers[worker].kept = iteration

    def process_ended(self, worker: int, now: Time) -> list[Order]:
        """The process of a worker that was lost has ended."""
        known = self._workers[worker]
        known.has_ended = True
        return self._started_if_fenced(known, now)

    def confirmed(
        self, server: str, worker: int, generation: int, watermark: int, clock: int, now: Time
    ) -> list[Order]:
        """A server hears only this generation of the worker.

        watermark: highest iteration that it has of the worker; -1: none. clock: iterations that it
        has finished.

        Raises:
            ProtocolError: the server was not asked, or has answered before.
        """
        if not 0 <= worker < len(self._workers):
            raise ProtocolError(f"{server} confirms worker {worker}, which does not exist")
        known = self._workers[worker]
        if generation < known.generation:
            return []  # the worker has been lost again
        if generation > known.generation or server not in known.unconfirmed:
            raise ProtocolError(
                f"{server} confirms generation {generation} of {known.name}, "
                "for which it was not asked"
            )
        known.unconfirmed.remove(server)
        known.reached[server] = watermark, clock
        if known.unconfirmed:
            return []
        if known.phase in (Phase.LEAVING, Phase.ENDED):
            untold = [name for name in self._schedulers if name not in known.reached]
            if untold:
                return self._replace(known, untold, stays=False)
            known.phase = Phase.GONE if known.phase is Phase.LEAVING else Phase.TOLD
            return [Removed(worker, self._lost_of(known))]
        return self._started_if_fenced(known, now)

    def given_up(self, worker: int) -> None:
        """The run is about to end, and without this lost worker: nothing is awaited of it."""
        known = self._workers[worker]
        known.phase, known.deadline = Phase.GONE, None

    def began(self, worker: int) -> None:
        """The new process of a worker is ready, and takes part from now on.

        Raises:
            ProtocolError: none is expected.
        """
        known = self._workers[worker]
        if known.phase is not Phase.STARTING:
            raise ProtocolError(f"{known.name} begins again, but its process was not lost")
        known.phase, known.deadline = Phase.HERE, None

    def finished(self, worker: int) -> None:
        """The worker is done, and has told the servers that it leaves: its end is no loss."""
        known = self._workers[worker]
        if known.phase is Phase.HERE:
            known.phase = Phase.FINISHED

    def on_time(self, now: Time) -> list[Order]:
        """End the run if a deadline has passed."""
        for known in self._workers:
            if known.deadline is not None and known.deadline <= now:
                known.deadline = None
                return [EndRun(self._too_late(known))]
        return []

    # ------------------------------------------------------------------------------------

    def _replaced(self, known: Worker, names: Sequence[str], *, stays: bool) -> list[Order]:
        """Give a worker a new generation, and have these hear only that."""
        self._generation += 1
        known.generation = self._generation
        known.reached.clear()
        return self._replace(known, names, stays=stays)

    def _replace(self, known: Worker, names: Sequence[str], *, stays: bool) -> list[Order]:
        """Have these hear only the worker's present generation, and expect their confirmations."""
        known.unconfirmed = set(names)
        return [Replace(name, known.number, known.generation, stays) for name in names]

    @property
    def _restarts(self) -> bool:
        return self._rules.on_loss == "restart" and self._rules.can_start

    def _started_if_fenced(self, known: Worker, now: Time) -> list[Order]:
        if known.phase is not Phase.FENCING or known.unconfirmed or not known.has_ended:
            return []
        highest = self._highest(known)
        if highest >= known.first:  # the lost process has pushed something
            del known.deaths[:-1]
        if (hopeless := self._hopeless(known, now)) is not None:
            known.deadline = None
            return [hopeless]
        reached, known.done = known.reached.values(), 1 + highest
        known.first = max(max(1 + watermark, clock) for watermark, clock in reached)
        known.first = max(known.first, known.kept)
        known.phase = Phase.STARTING
        known.deadline = now + nanoseconds(self._rules.start_s)
        return [Start(known.number, known.generation, known.first, self._lost_of(known))]

    def _highest(self, known: Worker) -> int:
        """Return the last iteration of a worker that any server has."""
        return max(known.reached[server][0] for server in self._servers)

    def _lost_of(self, known: Worker) -> int:
        """Return how many iterations of a worker some servers have and others lack, if new."""
        lowest = min(known.has_at(server) for server in self._servers)
        # A worker that has left pushes nothing more, whatever its script keeps.
        kept = known.kept - 1 if known.phase is Phase.STARTING else -1
        last = max(self._highest(known), kept)
        new = last - max(lowest, known.counted)
        known.counted = max(known.counted, last)
        return max(0, new)

    def _hopeless(self, known: Worker, now: Time) -> EndRun | None:
        deaths = known.deaths
        since = now - deaths[0]
        if len(deaths) < DEATHS or since < nanoseconds(self._rules.hopeless_s):
            return None
        return EndRun(
            f"{known.name} was lost {len(deaths)} times in {seconds(since):.0f} s and finished no "
            f"iteration in this time; the last time it {known.how}"
        )

    def _too_late(self, known: Worker) -> str:
        before = f"{known.name} {known.how}, and "
        if known.phase is Phase.STARTING:
            start_s = self._rules.start_s
            return f"{before}the process that takes its place was not ready within {start_s:.0f} s"
        limit = f"within {self._rules.fence_s:.0f} s"
        if known.unconfirmed:
            return f"{before}{', '.join(sorted(known.unconfirmed))} did not confirm it {limit}"
        return f"{before}its process did not end {limit}"
