"""Decides what is done when processes of a run are lost, in every runtime. Without any IO.

There are two recoveries:

- A worker of a run with servers is replaced alone, or the others continue without it.
- After every other loss all processes begin again from the last checkpoint: servers and models are
  as they were then, so nothing is applied twice, and the workers repeat what came after it, so
  nothing is missing. Before the training all begin as they did.

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

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal

from outpace.errors import ProtocolError
from outpace.support.units import Time, nanoseconds, seconds
from outpace.support.words import plural
from outpace.sync.membership.orders import (
    BeginAgain,
    EndRun,
    Kill,
    Loss,
    Order,
    Removed,
    Replace,
    Rules,
    Start,
)
from outpace.sync.messages import worker_name

DEATHS: Final = 5  # of a worker that finishes nothing, before the run may end
MOST_LOSSES: Final = 5  # after which all begin again, without a checkpoint in between
_MOST_EARLY: Final = 3  # losses in a row before the training begins


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
    has_trained: bool = False  # its part of the training is done
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
    """The table of the processes of a run: of all attempts, one after the other.

    Args:
        schedulers: names of processes that hear the workers, beside servers.

    Attributes:
        attempt: how often all processes have begun.
        has_begun: True once the training of this attempt has begun.
    """

    def __init__(self, rules: Rules, schedulers: Sequence[str] = ()) -> None:
        self.rules, self._schedulers = rules, tuple(schedulers)
        self.attempt, self.has_begun = 0, False
        self._checkpoint = self._losses = 0  # the last checkpoint, and losses since then
        self._early = 0  # losses in a row before the training

    # -- attempts ---------------------------------------------------------------------

    def begin(self, workers: int, servers: Sequence[str], gone: Collection[str] = ()) -> None:
        """All processes are started, for the first time or again.

        Args:
            workers: how many.
            servers: names of those that take gradients of the workers.
            gone: names of workers that are not started.
        """
        self.attempt += 1
        self.has_begun = False
        self._servers, self._generation = tuple(servers), 0  # the newest
        self._workers = [Worker(number) for number in range(workers)]
        for known in self._workers:
            if known.name in gone:
                known.phase = Phase.GONE

    def started(self) -> None:
        """The training begins."""
        self.has_begun, self._early = True, 0

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

    def can_spare(self, *workers: int) -> bool:
        """True if the run can continue when these workers are lost."""
        if self.rules.on_loss == "stop":
            return False
        others = (known for known in self._workers if known.number not in workers)
        return self.rules.replaces or any(other.phase not in AWAY for other in others)

    @property
    def gone(self) -> list[int]:
        """The workers without which the run goes on, as all servers know."""
        return [known.number for known in self._workers if known.phase is Phase.GONE]

    @property
    def is_over(self) -> bool:
        """True if each worker has finished or is gone."""
        return all(known.phase in (Phase.GONE, Phase.FINISHED) for known in self._workers)

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

    def lost(
        self,
        losses: Sequence[Loss],
        now: Time,
        *,
        checkpoint: int = 0,
        is_ending: bool = False,
        note: str = "",
    ) -> list[Order]:
        """Processes have ended, or are not heard any more.

        Args:
            losses: the one that the error names first.
            checkpoint: number of the last one; 0: there is none.
            is_ending: the run is about to end: lost workers are not replaced.
            note: is added to the reason if not all are replaced alone.
        """
        workers = {known.name: known for known in self._workers}
        lost = [workers[loss.name].number for loss in losses if loss.name in workers]
        together = [] if is_ending else lost
        ways = {
            loss: self._follows(workers.get(loss.name), loss, is_ending, together)
            for loss in losses
        }
        if set(ways.values()) == {"alone"}:
            return [
                order
                for loss in losses
                for order in self._lost_alone(workers[loss.name], loss, now, is_ending)
            ]
        needed = [loss for loss in losses if ways[loss] in ("all", "anew")]
        first = (needed or losses)[0]
        why, names = f"{first}{note}", [loss.name for loss in needed]
        if not needed:
            is_explained = first.name in workers and not (first.has_exited or is_ending)
            return [EndRun(why + self.rules.no_start * is_explained)]
        if all(ways[loss] == "anew" for loss in needed):
            return [self._all_anew(why, names)]
        return [self._all_again(why, names, {loss.name for loss in losses}, checkpoint)]

    def _follows(
        self, known: Worker | None, loss: Loss, is_ending: bool, together: Sequence[int]
    ) -> Literal["alone", "anew", "all", "end"]:
        """Return what follows a loss, apart from others at the same time.

        Args:
            known: the worker; None: a server is lost.
            together: the workers that are lost at the same time.

        Returns:
            alone: the others continue, with another process in its place or not. anew: all begin as
            they did. all: all begin again from the last checkpoint. end: the run ends.
        """
        rules = self.rules
        on_loss = rules.on_server_loss if known is None else rules.on_loss
        exits_again = loss.has_exited and on_loss == "restart"
        if not self.has_begun:
            if rules.can_begin_again and not loss.has_exited and on_loss != "stop":
                return "anew"
        elif known is not None:
            if known.phase not in (Phase.HERE, Phase.STARTING):
                return "alone"
            if self._servers:  # a worker that has trained has the end of its script to do
                is_spared = not known.has_trained and self.can_spare(known.number, *together)
                return "alone" if is_spared and not exits_again else "end"
            if known.has_trained or is_ending:
                return "alone"
        is_needed = known is None or not (self._servers or on_loss == "stop" or exits_again)
        return "all" if is_needed else "end"

    def _lost_alone(self, known: Worker, loss: Loss, now: Time, is_ending: bool) -> list[Order]:
        if known.phase is Phase.FENCING:
            return self.process_ended(known.number, now) if loss.has_ended else []
        if known.phase not in (Phase.HERE, Phase.STARTING, Phase.FINISHED):
            return []
        if not self._servers:
            known.phase = Phase.TOLD
            return [Removed(known.number, 0)]
        if known.phase is Phase.FINISHED:
            known.phase = Phase.ENDED
            return self._replaced(known, self._servers, stays=False)
        if is_ending:
            known.phase, known.deadline = Phase.GONE, None
            return []
        known.how, known.has_ended = loss.how, loss.has_ended
        stays = self.rules.replaces
        # A scheduler that no longer waits for the worker lets the others pull. If a server still
        # waited, their pulls would miss an iteration: the scheduler is told after the servers.
        told = self._servers + self._schedulers if stays else self._servers
        orders = self._replaced(known, told, stays=stays)
        if not loss.has_ended:
            orders.append(Kill(known.number))
        if not stays:
            known.phase, known.deadline = Phase.LEAVING, None
            return orders
        known.phase, known.deadline = Phase.FENCING, now + nanoseconds(self.rules.fence_s)
        known.deaths.append(now)
        return orders

    def _all_anew(self, why: str, names: Sequence[str]) -> Order:
        self._early += 1
        if self._early < _MOST_EARLY:
            return BeginAgain(why, names)
        return EndRun(
            f"{why}: the {_MOST_EARLY}rd time before the training began; look at the output "
            "of the process, and in the log of the system for what kills it (lack of memory)",
            names,
        )

    def _all_again(
        self, why: str, names: Sequence[str], lost: Collection[str], checkpoint: int
    ) -> Order:
        """Return the order to begin again from the last checkpoint, or to end the run.

        lost: names of all processes that are lost, also of those that could be replaced alone.
        """
        rules = self.rules
        gone = [known.name for known in self._workers if known.phase in AWAY or known.name in lost]
        without = gone if rules.on_loss == "continue" else []
        workers = len(self._workers) - len(without)
        if rules.on_server_loss == "continue":
            without = without + [name for name in self._servers if name in lost]
        if checkpoint and not rules.can_begin_again:
            said = "its workers were started elsewhere, so start them again with outpace serve"
            text = f"{why}; {said} --resume: it continues from checkpoint {checkpoint}"
            return EndRun(text, names)
        if workers < rules.least:
            return EndRun(f"{why}; the run needs at least {plural(rules.least, 'worker')}", names)
        if self._servers and set(self._servers) <= set(without):
            return EndRun(f"{why}; the run needs at least 1 server", names)
        if checkpoint == 0:
            return EndRun(why + rules.no_checkpoint, names)
        if rules.on_server_loss == "stop":
            return EndRun(why, names)
        self._losses = 1 + (self._losses if checkpoint == self._checkpoint else 0)
        self._checkpoint, self._early = checkpoint, 0
        if self._losses == MOST_LOSSES:
            said = f"the {MOST_LOSSES}th loss since checkpoint {checkpoint}"
            return EndRun(f"{why}: {said}; the run ends", names)
        return BeginAgain(why, names, checkpoint, without)

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

    def began(self, worker: int) -> None:
        """The new process of a worker is ready, and takes part from now on.

        Raises:
            ProtocolError: none is expected.
        """
        known = self._workers[worker]
        if known.phase is not Phase.STARTING:
            raise ProtocolError(f"{known.name} begins again, but its process was not lost")
        known.phase, known.deadline = Phase.HERE, None

    def has_trained(self, worker: int) -> None:
        """The worker has done its part of the training; its process has not finished."""
        self._workers[worker].has_trained = True

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
        known.deadline = now + nanoseconds(self.rules.start_s)
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
        if len(deaths) < DEATHS or since < nanoseconds(self.rules.hopeless_s):
            return None
        return EndRun(
            f"{known.name} was lost {len(deaths)} times in {seconds(since):.0f} s and finished no "
            f"iteration in this time; the last time it {known.how}"
        )

    def _too_late(self, known: Worker) -> str:
        before = f"{known.name} {known.how}, and "
        if known.phase is Phase.STARTING:
            start_s = self.rules.start_s
            return f"{before}the process that takes its place was not ready within {start_s:.0f} s"
        limit = f"within {self.rules.fence_s:.0f} s"
        if known.unconfirmed:
            return f"{before}{', '.join(sorted(known.unconfirmed))} did not confirm it {limit}"
        return f"{before}its process did not end {limit}"
