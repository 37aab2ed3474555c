"""Decides what is done when the process of a worker is lost in a run with servers. Without any IO.

Each process has a generation. When a worker's process is lost, all servers are told first to hear
only a process of a new generation under its name (`Replace`). Each confirms it, and says how far
the worker has come there. From then on nothing of the old process can be applied, even if it is
still alive. Once the old process has ended, too, a new one is started with the first iteration
that no server has of this worker (see `sync.checkpoint.state`). Or nobody takes its place, and the
worker has left the run.

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
    """What is done about a lost worker.

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

    lost: gradients that some servers have of this worker and others lack.
    """

    worker: int
    generation: int
    first: int
    lost: int


@dataclass(frozen=True, slots=True)
class Removed:
    """The run goes on without a worker, and all servers know it. lost: see `Start`."""

    worker: int
    lost: int


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run with this error."""

    reason: str


Order: TypeAlias = Replace | Kill | Start | Removed | EndRun


class _Phase(Enum):
    HERE = auto()
    FENCING = auto()  # lost; the servers are told, or the old process has not ended
    STARTING = auto()
    GONE = auto()  # the run goes on without it
    FINISHED = auto()


@dataclass(slots=True)
class _Worker:
    number: int
    phase: _Phase = _Phase.HERE
    generation: int = 0
    first: int = 0  # iteration of the present process
    has_ended: bool = False  # the process that was lost
    unconfirmed: set[str] = field(default_factory=set)
    reached: dict[str, tuple[int, int]] = field(default_factory=dict)  # watermark, clock by server
    deadline: Time | None = None
    deaths: list[Time] = field(default_factory=list)  # since it finished an iteration
    how: str = ""  # its process was lost

    @property
    def name(self) -> str:
        return worker_name(self.number)


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
        self._workers = [_Worker(number) for number in range(workers)]
        self._servers, self._schedulers, self._rules = tuple(servers), tuple(schedulers), rules
        self._generation = 0  # the newest

    # -- what others ask -------------------------------------------------------------

    def generation(self, worker: int) -> int:
        """Return the only generation of this worker that is heard."""
        return self._workers[worker].generation

    def is_starting(self, worker: int) -> bool:
        """True if a new process of this worker is expected, or not ready yet."""
        return self._workers[worker].phase is _Phase.STARTING

    def is_coming_back(self, worker: int) -> bool:
        """True if the worker's process is lost, and another one will take its place."""
        return self._workers[worker].phase in (_Phase.FENCING, _Phase.STARTING)

    def can_spare(self, worker: int) -> bool:
        """True if the run can go on when this worker is lost."""
        others = (known for known in self._workers if known.number != worker)
        if self._rules.on_loss == "stop":
            return False
        return self._restarts or any(other.phase is not _Phase.GONE for other in others)

    @property
    def next_deadline(self) -> Time | None:
        return min((w.deadline for w in self._workers if w.deadline is not None), default=None)

    # -- what has happened ---------------------------------------------------------------

    def lost(self, worker: int, how: str, now: Time, *, has_ended: bool) -> list[Order]:
        """The present process of a worker has ended, or is not heard any more.

        how: in words, for an error. has_ended: False if it may still be alive.
        """
        known = self._workers[worker]
        if known.phase is _Phase.FENCING:
            return self.process_ended(worker, now) if has_ended else []
        if known.phase in (_Phase.GONE, _Phase.FINISHED):
            return []
        if not self.can_spare(worker):
            return [EndRun(f"{known.name} {how}")]
        known.how, known.has_ended = how, has_ended
        self._generation += 1
        known.generation = self._generation
        stays = self._restarts
        # A scheduler that no longer waits for the worker lets the others pull. If a server still
        # waited, their pulls would miss an iteration: the scheduler is told after the servers.
        told = self._servers + self._schedulers if stays else self._servers
        replace = self._replace(known, told, stays=stays)
        kill = [] if has_ended else [Kill(worker)]
        known.reached.clear()
        if not stays:
            known.phase, known.deadline = _Phase.GONE, None
            return [*replace, *kill]
        known.phase = _Phase.FENCING
        known.deadline = now + nanoseconds(self._rules.fence_s)
        known.deaths.append(now)
        return [*replace, *kill]

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
        if known.phase is _Phase.GONE and not known.unconfirmed:
            untold = [name for name in self._schedulers if name not in known.reached]
            if untold:
                return self._replace(known, untold, stays=False)
            return [Removed(worker, self._lost_of(known))]
        return self._started_if_fenced(known, now)

    def began(self, worker: int) -> None:
        """The new process of a worker is ready, and takes part from now on.

        Raises:
            ProtocolError: none is expected.
        """
        known = self._workers[worker]
        if known.phase is not _Phase.STARTING:
            raise ProtocolError(f"{known.name} begins again, but its process was not lost")
        known.phase, known.deadline = _Phase.HERE, None

    def finished(self, worker: int) -> None:
        """The worker is done, so that its end is no loss."""
        known = self._workers[worker]
        if known.phase is _Phase.HERE:
            known.phase = _Phase.FINISHED

    def on_time(self, now: Time) -> list[Order]:
        """End the run if a deadline has passed."""
        for known in self._workers:
            if known.deadline is not None and known.deadline <= now:
                known.deadline = None
                return [EndRun(self._too_late(known))]
        return []

    # ------------------------------------------------------------------------------------

    def _replace(self, known: _Worker, names: Sequence[str], *, stays: bool) -> list[Order]:
        """Have these hear only the worker's new generation, and expect their confirmations."""
        known.unconfirmed = set(names)
        return [Replace(name, known.number, known.generation, stays) for name in names]

    @property
    def _restarts(self) -> bool:
        return self._rules.on_loss == "restart" and self._rules.can_start

    def _started_if_fenced(self, known: _Worker, now: Time) -> list[Order]:
        if known.phase is not _Phase.FENCING or known.unconfirmed or not known.has_ended:
            return []
        shards = [known.reached[server] for server in self._servers]
        highest = max(watermark for watermark, _ in shards)
        if highest >= known.first:  # the lost process has pushed something
            del known.deaths[:-1]
        if (hopeless := self._hopeless(known, now)) is not None:
            known.deadline = None
            return [hopeless]
        reached = known.reached.values()
        known.first = max(max(1 + watermark, clock) for watermark, clock in reached)
        known.phase = _Phase.STARTING
        known.deadline = now + nanoseconds(self._rules.start_s)
        return [Start(known.number, known.generation, known.first, self._lost_of(known))]

    def _lost_of(self, known: _Worker) -> int:
        """Return how many iterations of a worker some servers have and others lack."""
        shards = [known.reached[server] for server in self._servers]
        highest = max(watermark for watermark, _ in shards)
        return max(0, highest - min(max(watermark, clock - 1) for watermark, clock in shards))

    def _hopeless(self, known: _Worker, now: Time) -> EndRun | None:
        deaths = known.deaths
        since = now - deaths[0]
        if len(deaths) < DEATHS or since < nanoseconds(self._rules.hopeless_s):
            return None
        return EndRun(
            f"{known.name} was lost {len(deaths)} times in {seconds(since):.0f} s and finished no "
            f"iteration in this time; the last time it {known.how}"
        )

    def _too_late(self, known: _Worker) -> str:
        before = f"{known.name} {known.how}, and "
        if known.phase is _Phase.STARTING:
            start_s = self._rules.start_s
            return f"{before}the process that takes its place was not ready within {start_s:.0f} s"
        limit = f"within {self._rules.fence_s:.0f} s"
        if known.unconfirmed:
            return f"{before}{', '.join(sorted(known.unconfirmed))} did not confirm it {limit}"
        return f"{before}its process did not end {limit}"
