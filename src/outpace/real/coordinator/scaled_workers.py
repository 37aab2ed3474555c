"""Workers that join and leave while the training goes on: the coordinator's part.

`sync.membership` decides about each worker; here a change is seen to its end.

More workers:

1. Their processes are started. Nothing else changes until all of them have joined: if one is lost,
   or late, all are dropped (`arriving_workers`).
2. The servers are told of them, and say with which iterations they begin. The others are told from
   which iteration on the data are for all of them, and the new ones that they may begin
   (`joining_workers`).

Fewer: the last ones are told to leave before an iteration a little ahead, from which on the data
are for the others. When their processes have ended, the servers are told.

A worker that was lost for good is absent: its number, and its share of the data, wait for it. It
joins again when as many workers are asked for as there are numbers, or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from outpace.config.experiment import Experiment
from outpace.engine.elastic import why_workers_stay
from outpace.errors import ConfigError
from outpace.real.coordinator.arriving_workers import ArrivingWorkers
from outpace.real.coordinator.joining_scripts import JoiningScripts
from outpace.real.coordinator.joining_workers import JoiningWorkers
from outpace.real.coordinator.moving import Told
from outpace.real.coordinator.own_collectives import why_collectives
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.coordinator.saving.of_servers import CheckpointsOfServers
from outpace.real.net.membership_messages import (
    DataDivided,
    EndsTraining,
    LeaveRun,
    NewWorker,
    RunHasWorkers,
)
from outpace.real.net.messages import JoinRun, TrainingDone
from outpace.support.units import Time, seconds
from outpace.support.words import plural
from outpace.sync.membership import Membership, Start
from outpace.sync.messages import WireMessage, worker_name
from outpace.tasks import Script

if TYPE_CHECKING:
    from outpace.real.coordinator.recovery.replacements import Replacements

_MOST: Final = 1000
_AHEAD_S: Final = 1.0  # of the iteration at which workers leave; all have heard of it by then
_FIRST_IS_LOST: Final = "worker-0, with whose state the script was to begin, was lost"


class _Phase(Enum):
    """How far a change is."""

    NONE = auto()
    ARRIVING = auto()  # processes are started
    JOINING = auto()  # the servers are told of them
    LEAVING = auto()  # workers were told to leave


class ScaledWorkers:
    """The number of workers of a run with servers.

    A script ends by itself. One that has joined is told to leave when those of the start have come
    to their ends, if it has not ended before.

    Args:
        workers: names of all workers that there are or have been; changed when new ones join.
        servers: names of the servers.
        checkpoints: those of the run; None: none are taken.
        replacements: carries out the orders of `members`.
        servers_change: returns True while servers join or leave.

    Attributes:
        workers: the number that was asked for last.
        arriving: the processes that were started, and have not joined.
        has_scaled: True once it is another one than at the start, or about to be.
    """

    def __init__(
        self,
        run: RunAround,
        members: Membership,
        workers: list[str],
        servers: Sequence[str],
        checkpoints: CheckpointsOfServers | None,
        replacements: Replacements,
        servers_change: Callable[[], bool],
    ) -> None:
        self._run, self._members, self._replacements = run, members, replacements
        self._names, self._servers, self._checkpoints = workers, servers, checkpoints
        self._servers_change = servers_change
        self.workers, self.has_scaled = len(workers), False
        self._phase, self._next = _Phase.NONE, self.workers
        self._keys: dict[int, str] = {}  # of workers that have joined, which servers must know
        self._unknown: set[int] = set()  # those of them that no server knows yet
        self._leaving: set[int] = set()  # workers whose processes are to end
        self._first = 0  # iteration from which on there are as many workers
        self._began: Time = 0
        self._told: Told | None = None
        self._at_end: set[str] = set()  # workers that train no more
        self._of_start = set(range(self.workers))  # workers that have been there all the time
        self._scripts: JoiningScripts | None = None
        if isinstance(run.experiment.task, Script):
            self._scripts = JoiningScripts(run)
        self.arriving = ArrivingWorkers(run, members, replacements, self._are_there, self._drop)
        self._joining = JoiningWorkers(
            run,
            members,
            checkpoints,
            replacements,
            self._scripts,
            self.arriving.hears,
            self._divide_data,
            self._soon,
            self._have_joined,
        )

    def iteration(self, worker: int) -> int:
        """Return how far a worker is: its iterations, and those before it joined."""
        done = self._run.reports.totals.iterations.get(worker, 0)
        return done + self._replacements.uncounted(worker)

    @property
    def is_changing(self) -> bool:
        """True while workers join or leave."""
        return self._phase is not _Phase.NONE

    # -- the request -----------------------------------------------------------------

    def scale(self, workers: int, told: Told | None = None, without: Collection[str] = ()) -> str:
        """Go on with another number of workers; return what is done, in words.

        told: called when the run goes on with them, or stays as it is. without: names of absent
        workers that stay absent.

        Raises:
            ConfigError: if that cannot be.
        """
        self.require_possible(workers, without)
        starting = self._starting(workers, without)
        if workers == self.workers and not starting:
            said = f"the run has {plural(workers, 'worker')} already"
            if told is not None:
                told(is_done=True, text=said)
            return said
        experiment = self._with(workers)
        self._next, self._told, self._began = workers, told, self._run.kernel.now
        if starting:
            return self._start(starting, experiment)
        return self._let_leave(self._present(range(workers, self.workers)))

    def require_possible(self, workers: int, without: Collection[str] = ()) -> None:
        """Raise ConfigError if the run cannot go on with so many workers now."""
        if why := self._why_not(workers, without):
            raise ConfigError(f"workers: {why}")

    @property
    def taking_part(self) -> list[int]:
        """The workers, among those that were asked for, that have not left for good."""
        return self._present(range(self.workers))

    @property
    def absent(self) -> list[int]:
        """The workers that were lost for good, among those that were asked for, and can join again.

        Those of scripts stay lost: no script takes up their share of an epoch yet.
        """
        if self._scripts is not None:
            return []
        return [each for each in range(self.workers) if self._members.has_left(each)]

    def _present(self, numbers: range) -> list[int]:
        return [worker for worker in numbers if not self._members.has_left(worker)]

    def _starting(self, workers: int, without: Collection[str]) -> list[int]:
        """Return the workers that would be started."""
        if workers < self.workers:
            return []
        back = [worker for worker in self.absent if worker_name(worker) not in without]
        return [*back, *range(self.workers, workers)]

    def _why_not(self, workers: int, without: Collection[str] = ()) -> str:
        if not 1 <= workers <= _MOST:
            return f"must be from 1 to {_MOST}, not {workers}"
        if why := why_workers_stay(self._run.experiment):
            return why
        if self._run.processes.join_worker is None:
            return (
                "no worker can be started: the workers of this run are started elsewhere; with "
                f"checkpoint, outpace serve --resume RUN --connect FILE --workers {workers} can"
            )
        if why := why_collectives(self._run.reports.joined):
            return why
        if self._phase is not _Phase.NONE:
            return "workers are joining or leaving already; try again when they have"
        if self._servers_change():
            return "servers are joining or leaving; try again when they have"
        if self._run.ending() is not None or self.has_finished:
            return "the run is about to end"
        if self._replacements.is_recovering:
            return "a process that was lost is coming back; try again when it has"
        if not all(map(self._members.takes_part, self._present(range(workers, self.workers)))):
            return "a worker that would leave is lost already"
        starting, next_new = self._starting(workers, without), self._members.workers
        if starting and self._scripts is not None and not self._members.takes_part(0):
            return "worker-0, with whose state a script that joins begins, was lost"
        if not all(self._members.may_arrive(each) for each in starting if each <= next_new):
            return "not all servers are as they were; try again in a moment"
        try:
            self._with(workers)
        except (ConfigError, ValueError) as error:
            return f"the configuration does not fit {plural(workers, 'worker')}: {error}"
        return ""

    def _with(self, workers: int) -> Experiment:
        return replace(self._run.experiment, workers=workers)

    @property
    def has_finished(self) -> bool:
        """True if a worker that takes part has come to its end."""
        return not self._at_end.isdisjoint(self._names[: self.workers])

    # -- more workers ------------------------------------------------------------------

    def _start(self, numbers: Sequence[int], experiment: Experiment) -> str:
        self._phase = _Phase.ARRIVING
        if why := self.arriving.start(numbers, experiment):
            return self._drop(why)
        said = f"{', '.join(map(worker_name, numbers))} will join"
        self._run.log(f"{plural(self._next, 'worker')}: {said}")
        return said

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about a process that arrives."""
        if isinstance(message, EndsTraining | TrainingDone):
            self._at_end.add(name)
            self._look_at_ends()
            return isinstance(message, EndsTraining)
        return isinstance(message, JoinRun) and self.arriving.take(name, message)

    def _are_there(self) -> None:
        """The processes of all workers that are to join are there."""
        if self._scripts is None or self._is_about_to_end:
            self._let_join()
        elif not self._members.takes_part(0):  # it would not hear the request
            self._drop(_FIRST_IS_LOST)
        else:
            self._scripts.ask(self._let_join, self._not_kept)

    def _not_kept(self, why: str) -> None:
        self._drop(f"what the script of worker-0 keeps cannot be handed on: {why}")

    @property
    def _is_about_to_end(self) -> bool:
        return self._run.ending() is not None or self.has_finished

    def _look_at_ends(self) -> None:
        """Workers have come to their end: those that have joined do so when the others have."""
        if self._scripts is None:
            return
        if self._scripts.is_awaited and self.has_finished:
            self._drop("the run is about to end")
        here = {worker_name(each) for each in self._of_start if self._members.is_here(each)}
        if here <= self._at_end and not self._at_end.isdisjoint(map(worker_name, self._of_start)):
            for name in self._names[: self.workers]:
                if name not in here | self._at_end:
                    self._run.listener.send(name, LeaveRun(0))

    def _let_join(self) -> None:
        """All processes are there: tell the servers of them."""
        if self._is_about_to_end:
            self._drop("the run is about to end")
            return
        self._phase, self.has_scaled = _Phase.JOINING, True
        joining = self.arriving.take_all()
        self._joining.join(joining)
        if self._checkpoints is not None:
            self._checkpoints.hold()
        for worker in sorted(joining):
            name = worker_name(worker)
            if worker == len(self._names):
                self._names.append(name)
                self._keys[worker] = joining[worker]
                self._unknown.add(worker)
            self._run.losses.has_joined(name)
            self._run.reports.joins(worker, name)
            self._run.kept.joins(worker)
            self._at_end.discard(name)
            self._replacements.knows(worker)
        self._tell_servers()
        for worker in sorted(joining):
            self._replacements.do(self._members.joins(worker, self._run.kernel.now))

    def _tell_servers(self) -> None:
        new = [NewWorker(worker, self._keys[worker]) for worker in sorted(self._unknown)]
        self._unknown.clear()
        for name in self._servers:
            self._run.listener.send(name, RunHasWorkers(self._next, new))

    def for_new_servers(self) -> RunHasWorkers | None:
        """Return what servers that join must know; None if the workers are those of the start."""
        if not self.has_scaled:
            return None
        new = [NewWorker(worker, key) for worker, key in sorted(self._keys.items())]
        return RunHasWorkers(self.workers, new)

    def starts(self, order: Start) -> bool:
        """A worker may begin; False if its process is still to be started."""
        return self._joining.starts(order)

    def _divide_data(self, first: int) -> None:
        self._first = first
        self._replacements.divides_data(first, self._next)
        for name in self._names[: self._next]:
            self._run.listener.send(name, DataDivided(first, self._next))

    def began(self, worker: int) -> bool:
        """The process of a worker was told to start; False if it takes the place of a lost one."""
        has_joined = self._joining.began(worker)
        self._look_at_ends()  # the process before it may have been told to leave
        return has_joined

    def lost(self, worker: int) -> None:
        """A worker is lost: if it was about to join, another process does."""
        self._joining.lost(worker)
        self._at_end.discard(worker_name(worker))  # its next process may wait for the end again
        if worker == 0 and self._scripts is not None:
            self._scripts.first_is_lost()
            if self._scripts.is_awaited:
                self._drop(_FIRST_IS_LOST)
        now = self._run.kernel.now  # the machine has not been told yet
        self._run.kernel.call_at(now, lambda _: self._look_after_loss())

    def _look_after_loss(self) -> None:
        self._joining.look_after_loss()
        self._look_at_ends()

    def _have_joined(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.joined(len(self._names))
            self._checkpoints.release()
        if self._scripts is not None:
            self._scripts.forget()
        self._is_done()

    # -- fewer -------------------------------------------------------------------------

    def _let_leave(self, numbers: Sequence[int]) -> str:
        self._phase, self.has_scaled, self._leaving = _Phase.LEAVING, True, set(numbers)
        if self._checkpoints is not None:
            self._checkpoints.present = self._next
        first = self._soon()
        self._of_start.difference_update(numbers)
        for worker in numbers:
            self._members.retires(worker)
            self._run.listener.send(worker_name(worker), LeaveRun(first))
        self._divide_data(first)
        if not numbers:  # they have left already
            self._all_have_left()
            return f"the data are for {plural(self.workers, 'worker')}"
        said = f"{', '.join(map(worker_name, numbers))} will leave"
        self._run.log(f"{plural(self._next, 'worker')}: {said}")
        return said

    def _soon(self) -> int:
        """Return the next iteration that no worker has begun when it hears of it.

        Reports are up to a quarter of a second old. Where iterations are long it is the next one.
        """
        fastest = max(map(self.iteration, range(self.workers)))
        passed_s = max(seconds(self._run.kernel.now), 1.0)
        return fastest + 1 + math.ceil(_AHEAD_S * fastest / passed_s)

    def _has_left(self, worker: int) -> None:
        self._leaving.discard(worker)
        self._run.processes.release(worker_name(worker))
        if not self._leaving:
            self._all_have_left()

    def _all_have_left(self) -> None:
        self._tell_servers()
        self._is_done()

    # -- the end, and losses -------------------------------------------------------------

    def process_ended(self, name: str) -> None:
        """The process of this name has ended."""
        leaving = [each for each in self._leaving if worker_name(each) == name]
        if leaving:
            self._has_left(leaving[0])

    def _drop(self, why: str) -> str:
        """Stay with the present workers; return that, in words."""
        self.arriving.give_up()
        if self._scripts is not None:
            self._scripts.forget()
        self._phase, self._next = _Phase.NONE, self.workers
        said = f"the number of workers stays {self.workers}: {why}"
        self._run.log(said)
        self._tell(is_done=False, text=said)
        return said

    def _is_done(self) -> None:
        before, self.workers, self._phase = self.workers, self._next, _Phase.NONE
        took_s = seconds(self._run.kernel.now - self._began)
        self._run.observer.scaled(before, self.workers, self._first, took_s)
        absent = ", ".join(map(worker_name, self.absent))
        without = f" without {absent}" if absent else ""
        said = (
            f"the run goes on with {plural(self.workers, 'worker')}{without}, from iteration "
            f"{self._first} on, after {took_s:.2f} s"
        )
        self._run.log(said)
        if self._checkpoints is not None:
            self._checkpoints.present = self.workers
            self._checkpoints.save_now()
        self._tell(is_done=True, text=said)

    def _tell(self, *, is_done: bool, text: str) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(is_done=is_done, text=text)
