"""Processes that are started while the training goes on, and are to join as workers.

Until all of them are there, nothing in the run has changed: if one is lost, late, or does not fit,
all are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from outpace.config.experiment import Experiment
from outpace.errors import RunError
from outpace.real.coordinator.recovery.losses import how_lost
from outpace.real.coordinator.recovery.run_around import RunAround
from outpace.real.net.messages import JoinRun
from outpace.sync.membership import Membership
from outpace.sync.messages import worker_name

if TYPE_CHECKING:
    from outpace.real.coordinator.recovery.replacements import Replacements


class ArrivingWorkers:
    """The processes that were started, and have not joined yet.

    Args:
        replacements: carries out the orders of `members`.
        are_there: called when all have said what they train.
        drop: called with why none of them joins; calls `give_up`.
    """

    def __init__(
        self,
        run: RunAround,
        members: Membership,
        replacements: Replacements,
        are_there: Callable[[], None],
        drop: Callable[[str], object],
    ) -> None:
        self._run, self._members, self._replacements = run, members, replacements
        self._are_there, self._drop = are_there, drop
        self._keys: dict[int, str] = {}  # of the processes, by worker
        self._waiting: set[int] = set()  # those of them that are there
        self._generations: dict[int, int] = {}  # of all processes that were started so far

    def start(self, numbers: Sequence[int], experiment: Experiment) -> str:
        """Start processes for these workers; return why one could not be started, else nothing."""
        start, now = self._run.processes.join_worker, self._run.kernel.now
        assert start is not None
        for worker in numbers:
            generation = self._members.arrives(worker, now, self._run.processes.room_s)
            self._run.losses.joins(worker_name(worker))
            self._generations[worker], self._keys[worker] = generation, ""
            try:
                self._keys[worker] = start(worker, generation, experiment)
            except Exception as error:  # of the system, or of a cluster's library
                return f"{worker_name(worker)} could not be started: {error}"
        self._replacements.do([])  # watches the limit
        return ""

    def includes(self, name: str) -> bool:
        """True if a process of this name was started, and may join."""
        return self._number(name) is not None

    def hears(self, worker: int, generation: int) -> bool:
        """True if the coordinator hears this generation of a worker, which joins or has joined."""
        return self._generations.get(worker) == generation

    def take(self, name: str, message: JoinRun) -> bool:
        """A process says what it trains; False if it is none of these."""
        worker = self._number(name)
        if worker is None:
            return False
        first = self._run.reports.joined[worker_name(0)]
        if message.layers != first.layers or message.layout != first.layout:
            self._drop(f"{name} trains other parameters than worker-0")
        elif message.kept != first.kept:
            self._drop(f"the script of {name} gives outpace.attach other objects than worker-0's")
        else:
            self._waiting.add(worker)
            if self._waiting.issuperset(self._keys):
                self._are_there()
        return True

    def take_all(self) -> Mapping[int, str]:
        """They join now: return the workers, and their public keys."""
        keys, self._keys, self._waiting = self._keys, {}, set()
        return keys

    # -- losses ------------------------------------------------------------------------

    def drop_lost(self, lost: Mapping[str, RunError]) -> Collection[str]:
        """Drop lost workers that had not joined; return their names."""
        names = set(filter(self.includes, lost))
        if names:
            name = min(names)
            self.drop(name, how_lost(name, lost[name]))
        return names

    def drop(self, name: str, how: str) -> bool:
        """Drop a worker that has failed before it had joined; False if it is none."""
        worker = self._number(name)
        if worker is not None:
            self._lose(worker, how)
        return worker is not None

    def not_joined(self, worker: int, how: str) -> None:
        """The machine has given up a worker that was to join."""
        if worker in self._keys:
            self._forget(worker)
            self._drop(f"{worker_name(worker)} {how}")

    def give_up(self) -> None:
        """End all of them."""
        while self._keys:
            worker = min(self._keys)
            self._forget(worker)
            self._lose(worker, "is not needed")
        self._waiting = set()

    def _number(self, name: str) -> int | None:
        return next((each for each in self._keys if worker_name(each) == name), None)

    def _lose(self, worker: int, how: str) -> None:
        now = self._run.kernel.now
        self._replacements.do(self._members.lost(worker, how, now, has_ended=True))

    def _forget(self, worker: int) -> None:
        del self._keys[worker]
        name = worker_name(worker)
        self._run.losses.goes_without(name)
        self._run.processes.kill(name)
        self._run.processes.release(name)
