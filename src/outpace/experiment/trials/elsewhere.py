"""Carries runs out on the nodes of a cluster, in slots that are asked for as runs need them.

A slot is asked for each run that waits, as far as the cluster has room; a few more are, so that a
cluster that grows gives them as well. A slot carries out one run after the other, and is given back
when no run has needed it for a while.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from typing import Final

from outpace.errors import ConfigError, RunError
from outpace.experiment.launching import files_of
from outpace.experiment.trials.arriving import Arriving
from outpace.experiment.trials.carrier import Lost, Told
from outpace.experiment.trials.one import End
from outpace.experiment.trials.orders import Order
from outpace.experiment.trials.remote import Piece, Printed, Remote
from outpace.real.process.ray import slot_news as news
from outpace.real.process.ray.slot_news import SlotNews, Slots
from outpace.support.streams import write_line

_GRACE_S: Final = 60.0  # for the runs to complete their folders, and for these to come
_IDLE_S: Final = 10.0  # after which a slot is given back
_SAY_AFTER_S: Final = 3.0
_MORE: Final = 4  # slots that are asked for beyond the room that a cluster has


@dataclass(eq=False, slots=True)
class _Slot:
    """A slot.

    Attributes:
        node: its name, once there is room for the slot.
        is_placed: the slot can be used.
        problem: of its node; a slot with one is not used.
        runs: how many it has begun.
    """

    number: int
    all_cores: bool
    node: str = ""
    is_placed: bool = False
    problem: str = ""
    run: int | None = None
    runs: int = 0
    idle_since: float = field(default_factory=time.monotonic)

    @property
    def is_idle(self) -> bool:
        return self.is_placed and self.run is None


@dataclass(eq=False, slots=True)
class _Run:
    """A run that is under way. arriving: its folder. failure: why that cannot arrive."""

    arriving: Arriving | None
    failure: str = ""


class RunsElsewhere:
    """A `Carrier` on the nodes of a cluster.

    Args:
        slots: of the cluster; they are not closed with this object.
        cpus: that each run takes up; None: one, and if it needs all cores, those of the node that
            has most.
        all_cores: what most runs need, for `most`: all cores of a machine.
        most: runs at a time; None: as many as there is room for.
        runs_each: after so many runs another slot takes the place of one.
        wait_s: for the first slot, and for another one when all are lost.
        say: called with a line about lost nodes, or what is awaited.
    """

    def __init__(
        self,
        slots: Slots,
        *,
        cpus: float | None = None,
        all_cores: bool = False,
        most: int | None = None,
        runs_each: int = 200,
        wait_s: float = 60.0,
        say: Callable[[str], None],
    ) -> None:
        self._slots, self._cpus, self._limit = slots, cpus, math.inf if most is None else most
        self._all_cores = all_cores
        self._runs_each, self._wait_s, self._say = runs_each, wait_s, say
        self._held: dict[int, _Slot] = {}  # by number
        self._runs: dict[int, _Run] = {}  # by number
        self._refused: dict[str, str] = {}  # nodes, and why they cannot take part
        self._starved_since: float | None = None
        self._has_said = False
        self._is_closed = False

    # -- room ----------------------------------------------------------------------------

    @property
    def most(self) -> int:
        return int(min(self._limit, max(1, self._room(self._all_cores))))

    def _needed(self, all_cores: bool) -> float:
        """Return how many CPUs a run takes up."""
        if self._cpus is not None:
            return self._cpus
        return max([1.0, *self._slots.cpus().values()]) if all_cores else 1.0

    def _room(self, all_cores: bool) -> int:
        """Return how many runs the cluster has room for if nothing else uses it."""
        needed = self._needed(all_cores)
        return sum(int(cpus / needed) for cpus in self._slots.cpus().values())

    def require_room(self) -> None:
        """Wait until there is a slot. Raises ConfigError if there is none in time."""
        all_cores = self._all_cores
        try:
            while not self.has_room(all_cores):
                again_s = self.expect([all_cores])
                ready = wait(self.waited_for, None if again_s == math.inf else again_s)
                for _ in self.take(ready):
                    pass
        except RunError as error:
            raise ConfigError(str(error)) from None

    def expect(self, waiting: Sequence[bool]) -> float:
        # Runs begin in their order: a slot held for one behind the first of another kind would
        # keep the CPUs that the first needs.
        head = list(takewhile(lambda each: each is waiting[0], waiting))
        for all_cores in (False, True):
            held = [s for s in self._held.values() if s.all_cores is all_cores and not s.problem]
            under_way = sum(slot.run is not None for slot in held)
            wanted = under_way + sum(each is all_cores for each in head)
            self._give_back(held, len(held) - wanted, at_once=(not all_cores) in head)
            most = min(wanted, self._limit, self._room(all_cores) + _MORE)
            for _ in range(int(most) - len(held)):
                number = self._slots.ask(self._needed(all_cores))
                self._held[number] = _Slot(number, all_cores)
        is_starved = bool(waiting) and not any(
            slot.run is not None or (slot.is_placed and slot.all_cores is waiting[0])
            for slot in self._held.values()
        )
        if not is_starved:
            self._starved_since = None
            return math.inf if waiting or not self._held else _IDLE_S
        return self._starve(waiting[0])

    def _give_back(self, held: Sequence[_Slot], spare: int, *, at_once: bool) -> None:
        """Give slots back that no run needs: those that are not there yet, and then idle ones."""
        now = time.monotonic()
        free = sorted((s for s in held if s.run is None), key=lambda slot: slot.is_placed)
        for slot in free[: max(0, spare)]:
            if at_once or not slot.is_placed or now - slot.idle_since >= _IDLE_S:
                del self._held[slot.number]
                self._slots.give_back(slot.number)

    def _starve(self, all_cores: bool) -> float:
        """No run is under way and no slot is there: say so, or raise RunError after a while."""
        now = time.monotonic()
        if self._starved_since is None:
            self._starved_since, self._has_said = now, False
        waited_s = now - self._starved_since
        starting = [slot.node for slot in self._held.values() if slot.node and not slot.problem]
        if waited_s >= _SAY_AFTER_S and not self._has_said:
            self._has_said = True
            if not starting:
                self._say(f"waiting for room on the cluster: {self._lack(all_cores)}")
        if self._refused and not self._room(all_cores):
            raise RunError(f"on: {self._lack(all_cores)}")
        if waited_s >= self._wait_s and starting:
            raise RunError(
                f"on: node {starting[0]} did not answer within {self._wait_s:g} s: look at it with "
                "`ray status`, or wait longer (wait_s)"
            )
        if waited_s >= self._wait_s:
            raise RunError(
                f"on: {self._lack(all_cores)}; waited {self._wait_s:g} s for it: ask for fewer "
                "CPUs with --cpus (cpus), or wait longer (wait_s)"
            )
        then_s = self._wait_s if self._has_said else min(_SAY_AFTER_S, self._wait_s)
        return then_s - waited_s

    def _lack(self, all_cores: bool) -> str:
        for node, problem in self._refused.items():
            return f"node {node} {problem}"
        needed, nodes = self._needed(all_cores), self._slots.cpus()
        if max(nodes.values(), default=0.0) < needed:
            return (
                f"a run needs {needed:g} CPU, and no node of the cluster has more than "
                f"{max(nodes.values(), default=0.0):g}"
            )
        return (
            f"a run needs {needed:g} CPU of one node, and {self._slots.free_cpus():g} of the "
            f"cluster's {sum(nodes.values()):g} are free"
        )

    def has_room(self, all_cores: bool) -> bool:
        return self._idle(all_cores) is not None and len(self._runs) < self._limit

    def _idle(self, all_cores: bool) -> _Slot | None:
        return next(
            (s for s in self._held.values() if s.is_idle and s.all_cores is all_cores), None
        )

    # -- runs ----------------------------------------------------------------------------

    @property
    def waited_for(self) -> Sequence[Connection | int]:
        return [self._slots.woken]

    def begin(self, run: int, order: Order, all_cores: bool) -> None:
        slot = self._idle(all_cores)
        assert slot is not None
        folder = order.folder
        slot.run, self._runs[run] = run, _Run(None if folder is None else Arriving(folder))
        slot.runs += 1
        paths = files_of(order.experiment)
        self._slots.begin(slot.number, run, replace(order, key=None), slot.node, paths)

    def stop(self, run: int, reason: str) -> None:
        for slot in self._held.values():
            if slot.run == run:
                self._slots.stop(slot.number, run, reason)

    def take(self, ready: Iterable[object]) -> Iterator[Told]:
        if self._slots.woken in ready:
            for each in self._slots.news():
                yield from self._taken(each)

    def _taken(self, told: SlotNews) -> Iterator[Told]:
        slot = self._held.get(told.slot)
        if slot is None:  # given back
            return
        match told:
            case news.Found():
                slot.node = told.node
            case news.Placed():
                slot.is_placed, slot.node, slot.idle_since = True, told.node, time.monotonic()
            case news.Refused():
                slot.problem, slot.node = told.problem, told.node
                if told.node not in self._refused:
                    self._refused[told.node] = told.problem
                    self._say(f"node {told.node} {told.problem}; no run begins there")
            case news.Said():
                for said in told.messages:
                    yield from self._heard(slot, said)
            case news.Lost():
                del self._held[slot.number]
                yield from self._lose(slot, told)

    def _heard(self, slot: _Slot, said: Remote) -> Iterator[Told]:
        """Take what the run of a slot has told."""
        if slot.run is None:
            return
        number, run = slot.run, self._runs[slot.run]
        match said:
            case Printed():
                write_line(sys.stderr if said.error else sys.stdout, said.line)
            case Piece():
                piece = said
                self._arrive(run, slot.node, lambda folder: folder.add(piece))
            case End():
                end = said
                self._arrive(run, slot.node, lambda folder: folder.complete(end))
                if run.failure:
                    summary = {"status": "failed", "error": run.failure}
                    end = End("failed", run.failure, summary, said.cpu_s)
                slot.run, slot.idle_since = None, time.monotonic()
                del self._runs[number]
                if slot.runs >= self._runs_each:
                    del self._held[slot.number]
                    self._slots.give_back(slot.number)
                yield number, end
            case _:
                yield number, said

    def _arrive(self, run: _Run, node: str, what: Callable[[Arriving], None]) -> None:
        if run.arriving is None or run.failure:
            return
        try:
            what(run.arriving)
        except Exception as error:  # the pool waits for this run
            run.failure = f"the files of the run cannot be brought from node {node}: {error}"
            run.arriving.abandon()

    def _lose(self, slot: _Slot, lost: news.Lost) -> Iterator[Told]:
        if slot.run is None:
            return
        self._say(f"a run on node {lost.node} was lost, and begins again: {lost.why}")
        run = self._runs.pop(slot.run)
        if run.arriving is not None:
            run.arriving.abandon()
        yield slot.run, Lost(f"was lost on node {lost.node} ({lost.why})")

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for slot in self._held.values():
                if slot.run is not None:
                    self._slots.stop(slot.number, slot.run, "interrupted")
            deadline_s = time.monotonic() + _GRACE_S
            while self._runs and (left_s := deadline_s - time.monotonic()) > 0:
                for _ in self.take(wait(self.waited_for, left_s)):
                    pass
        finally:  # a second Ctrl-C does not wait
            for number in list(self._held):
                self._slots.give_back(number)
            for run in self._runs.values():
                if run.arriving is not None:
                    run.arriving.abandon()
            self._held.clear()
            self._runs.clear()
