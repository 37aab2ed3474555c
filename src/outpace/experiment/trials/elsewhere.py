"""Carries runs out on the nodes of a cluster, which decides where and when.

As many runs are given to the cluster as it has room for, and a few more, so that a cluster that
grows by itself sees what is asked for.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from outpace.errors import ConfigError, RunError
from outpace.experiment.launching import files_of
from outpace.experiment.trials.arriving import Arriving
from outpace.experiment.trials.carrier import Lost, Told
from outpace.experiment.trials.one import End
from outpace.experiment.trials.orders import Order
from outpace.experiment.trials.remote import Piece, Printed, Remote, carry_out_on_node
from outpace.real.process.ray.survey import Began, RunLost
from outpace.support.streams import write_line

if TYPE_CHECKING:
    from outpace.real.process.ray.tasks import RayTask, RayTasks

_GRACE_S: Final = 60.0  # for the runs to complete their folders, and for these to come
_LOOK_S: Final = 0.05
_SAY_AFTER_S: Final = 3.0
_MORE: Final = 4  # runs that are given to a cluster beyond the room that it has


@dataclass(eq=False, slots=True)
class _Run:
    """A run that was given to the cluster.

    Attributes:
        number: by which the pool names it.
        node: its name, once a node has taken the run.
        arriving: the folder of the run. failure: why that cannot arrive.
    """

    number: int
    order: Order
    all_cores: bool
    task: RayTask
    arriving: Arriving | None
    node: str = ""
    failure: str = ""


class RunsElsewhere:
    """A `Carrier` on the nodes of a cluster.

    Args:
        tasks: the cluster; the connection is not closed with this object.
        cpus: that each run takes up; None: one, and if it needs all cores, those of the node that
            has most.
        all_cores: what most runs need, for `most`: all cores of a machine.
        most: runs at a time; None: as many as there is room for.
        wait_s: for room for the first run, and again when all are lost.
        say: called with a line about lost nodes, or what is awaited.
    """

    waited_for: Sequence[Connection] = ()  # `expect` says when to look

    def __init__(
        self,
        tasks: RayTasks,
        *,
        cpus: float | None = None,
        all_cores: bool = False,
        most: int | None = None,
        wait_s: float = 60.0,
        say: Callable[[str], None],
    ) -> None:
        self._tasks, self._cpus, self._limit = tasks, cpus, math.inf if most is None else most
        self._all_cores = all_cores
        self._wait_s, self._say = wait_s, say
        self._runs: dict[int, _Run] = {}  # by number
        self._waiting: Sequence[bool] = ()  # needs of the runs that were not given to the cluster
        self._ended: list[Told] = []  # runs that were stopped before a node has taken them
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
        return max([1.0, *self._tasks.cpus().values()]) if all_cores else 1.0

    def _room(self, all_cores: bool) -> int:
        """Return how many runs the cluster has room for if nothing else uses it."""
        needed = self._needed(all_cores)
        return sum(int(cpus / needed) for cpus in self._tasks.cpus().values())

    def require_room(self) -> None:
        """Wait until a run could begin. Raises ConfigError if none could in time."""
        try:
            while True:
                task = self._tasks.begin(self._needed(self._all_cores), (), _nothing)
                try:
                    began = self._first_of(task)
                finally:
                    task.cancel()
                if began is not None and not self._refuses(began):
                    break
        except RunError as error:
            raise ConfigError(str(error)) from None
        self._starved_since = None

    def _first_of(self, task: RayTask) -> Began | None:
        """Wait until a node has taken a run; None: it was lost before. Raises RunError."""
        while True:
            for told in task.told():
                return told if isinstance(told, Began) else None
            self._starve(self._all_cores)
            time.sleep(_LOOK_S)

    def _refuses(self, began: Began) -> bool:
        """True if a node cannot take part."""
        if began.problem:
            self._tasks.refuse(began.node)
            if began.node not in self._refused:
                self._refused[began.node] = began.problem
                self._say(f"node {began.node} {began.problem}; no run begins there")
        return bool(began.problem)

    def expect(self, waiting: Sequence[bool]) -> float:
        self._waiting = waiting
        return _LOOK_S if self._runs or self._ended or waiting else math.inf

    def _require_progress(self) -> None:
        """If no run is under way, say so, or raise RunError after a while."""
        queued = [run.all_cores for run in self._runs.values() if not run.node]
        if len(queued) < len(self._runs) or not (queued or self._waiting):
            self._starved_since = None
        else:
            self._starve([*queued, *self._waiting][0])

    def _starve(self, all_cores: bool) -> None:
        """No run is under way: say so, or raise RunError after a while."""
        now = time.monotonic()
        if self._starved_since is None:
            self._starved_since, self._has_said = now, False
        waited_s = now - self._starved_since
        is_late = waited_s >= min(_SAY_AFTER_S, self._wait_s)
        # Ray does not say whether a run waits for room, or for its process to start.
        has_room = is_late and self._needed(all_cores) <= max(
            self._tasks.free_cpus().values(), default=0.0
        )
        if waited_s >= _SAY_AFTER_S and not has_room and not self._has_said:
            self._has_said = True
            self._say(f"waiting for room on the cluster: {self._lack(all_cores)}")
        if self._refused and not self._room(all_cores):
            raise RunError(f"on: {self._lack(all_cores)}")
        if waited_s >= self._wait_s and has_room:
            raise RunError(
                f"on: no node has begun a run within {self._wait_s:g} s, though there is room: "
                "look at the cluster with `ray status`, or wait longer (wait_s)"
            )
        if waited_s >= self._wait_s:
            raise RunError(
                f"on: {self._lack(all_cores)}; waited {self._wait_s:g} s for it: ask for fewer "
                "CPUs with --cpus (cpus), or wait longer (wait_s)"
            )

    def _lack(self, all_cores: bool) -> str:
        for node, problem in self._refused.items():
            return f"node {node} {problem}"
        needed, nodes = self._needed(all_cores), self._tasks.cpus()
        if max(nodes.values(), default=0.0) < needed:
            return (
                f"a run needs {needed:g} CPU, and no node of the cluster has more than "
                f"{max(nodes.values(), default=0.0):g}"
            )
        free = sum(self._tasks.free_cpus().values())
        return (
            f"a run needs {needed:g} CPU of one node, and {free:g} of the "
            f"cluster's {sum(nodes.values()):g} are free"
        )

    def has_room(self, all_cores: bool) -> bool:
        # Runs begin in their order: one that needs less would keep the CPUs that one before needs.
        is_behind = any(not run.node and run.all_cores != all_cores for run in self._runs.values())
        room = min(self._limit, self._room(all_cores) + _MORE)
        return not is_behind and len(self._runs) < room

    # -- runs ----------------------------------------------------------------------------

    def begin(self, run: int, order: Order, all_cores: bool) -> None:
        arriving = None if order.folder is None else Arriving(order.folder)
        order = replace(order, key=None)
        task = self._begin(order, all_cores)
        self._runs[run] = _Run(run, order, all_cores, task, arriving)

    def _begin(self, order: Order, all_cores: bool) -> RayTask:
        paths = files_of(order.experiment)
        return self._tasks.begin(self._needed(all_cores), paths, carry_out_on_node, order)

    def stop(self, run: int, reason: str) -> None:
        if (found := self._runs.get(run)) is None:
            return
        if found.node:
            found.task.stop(reason)
        else:
            del self._runs[run]
            found.task.cancel()
            end = End("stopped", reason, {"status": "partial", "error": reason})
            self._ended.append((run, end))

    def take(self, ready: Iterable[object]) -> Iterator[Told]:
        yield from self._ended
        self._ended.clear()
        for run in list(self._runs.values()):
            for told in run.task.told():
                match told:
                    case Began():
                        yield from self._began(run, told)
                    case RunLost():
                        yield from self._lose(run, told)
                    case _:
                        for said in told:
                            yield from self._heard(run, said)
                if self._runs.get(run.number) is not run or not run.node:  # it has another task
                    break
        # Not before what has come was read: this process may have been busy for long.
        self._require_progress()

    def _began(self, run: _Run, began: Began) -> Iterator[Told]:
        if self._refuses(began):
            run.task = self._begin(run.order, run.all_cores)
            return
        run.node = began.node
        if began.missing:
            error = f"node {began.node} does not have {', '.join(began.missing)}"
            yield from self._heard(run, End("failed", error, {"status": "failed", "error": error}))

    def _heard(self, run: _Run, said: Remote) -> Iterator[Told]:
        """Take what a run has told."""
        match said:
            case Printed():
                write_line(sys.stderr if said.error else sys.stdout, said.line)
            case Piece():
                piece = said
                self._arrive(run, lambda folder: folder.add(piece))
            case End():
                end = said
                self._arrive(run, lambda folder: folder.complete(end))
                if run.failure:
                    summary = {"status": "failed", "error": run.failure}
                    end = End("failed", run.failure, summary, said.cpu_s)
                del self._runs[run.number]
                yield run.number, end
            case _:
                yield run.number, said

    def _arrive(self, run: _Run, what: Callable[[Arriving], None]) -> None:
        if run.arriving is None or run.failure:
            return
        try:
            what(run.arriving)
        except Exception as error:  # the pool waits for this run
            run.failure = f"the files of the run cannot be brought from node {run.node}: {error}"
            run.arriving.abandon()

    def _lose(self, run: _Run, lost: RunLost) -> Iterator[Told]:
        where = f"on node {run.node}" if run.node else "without a node"
        self._say(f"a run {where} was lost, and begins again: {lost.why}")
        del self._runs[run.number]
        if run.arriving is not None:
            run.arriving.abandon()
        yield run.number, Lost(f"was lost {where} ({lost.why})")

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed, self._waiting = True, ()
        try:
            for run in list(self._runs):
                self.stop(run, "interrupted")
            deadline_s = time.monotonic() + _GRACE_S
            while self._runs and time.monotonic() < deadline_s:
                time.sleep(_LOOK_S)
                for _ in self.take(()):
                    pass
        finally:  # a second Ctrl-C does not wait
            for each in self._runs.values():
                each.task.cancel()
                if each.arriving is not None:
                    each.arriving.abandon()
            self._runs.clear()


def _nothing(_: object) -> Iterator[list[Remote]]:
    """Be a run that tells whether there is room for others."""
    return iter(())
